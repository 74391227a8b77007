"""Every setting, declared once: default, flag, limits and help line together."""

from anychip.settings.http import HttpSettings
from anychip.settings.logs import CallLogSettings
from anychip.settings.serve_config import ServeConfig, user_path

__all__ = ["CallLogSettings", "HttpSettings", "ServeConfig", "user_path"]
