"""Every setting, declared once: default, flag, limits and help line together."""

from anychip.settings.http import HttpSettings
from anychip.settings.logs import CallLogSettings
from anychip.settings.paths import user_path
from anychip.settings.router import RouterConfig
from anychip.settings.serve_config import ServeConfig

__all__ = ["CallLogSettings", "HttpSettings", "RouterConfig", "ServeConfig", "user_path"]
