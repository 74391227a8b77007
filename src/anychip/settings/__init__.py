"""Every setting of a server, declared once: default, flag, limits and help line together."""

from anychip.settings.serve_config import ServeConfig, user_path

__all__ = ["ServeConfig", "user_path"]
