"""ModelScope's hub through its own client and cache (an extra: `anychip[modelscope]`).

The client reads MODELSCOPE_CACHE, MODELSCOPE_API_TOKEN, MODELSCOPE_ENDPOINT and others itself.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from modelscope.hub.api import HubApi
from modelscope.hub.snapshot_download import snapshot_download

from anychip.model.hub.errors import HubError, Unreachable
from anychip.model.hub.source import Listing, ModelOnHub, RemoteFile, disk_error, said

_NOTHING = "/"
"""A pattern that fits no file; without one the client takes them all."""


class ModelScope(ModelOnHub):
    """A model on the hub."""

    title = "ModelScope"

    def listing(self) -> Listing:
        """The files of the revision, with sizes."""
        try:
            rows = HubApi().get_model_files(self._id, revision=self._revision, recursive=True)
        except Exception as error:
            raise self._told(error, begun=False) from error
        files = [row for row in rows if row.get("Type") != "tree"]
        return {row["Path"]: RemoteFile(int(row.get("Size") or 0)) for row in files}

    def cached(self) -> Path | None:
        """The folder in the cache. The client's error for "none" is another in each version:
        CacheNotFound, before that a ValueError."""
        try:
            found = snapshot_download(
                self._id, revision=self._revision, cache_dir=self._cache, local_files_only=True
            )
        except Exception as error:
            if isinstance(error, ValueError) or type(error).__name__ == "CacheNotFound":
                return None
            raise self._told(error, begun=False) from error
        return Path(found)

    def fetch(self, files: Sequence[str]) -> Path:
        """Bring these files into the cache."""
        patterns = [glob.escape(file) for file in files] or [_NOTHING]
        try:
            found = snapshot_download(
                self._id, revision=self._revision, cache_dir=self._cache, allow_patterns=patterns
            )
        except Exception as error:
            full = disk_error(error, self._cache or "ModelScope's cache")
            raise full or self._told(error, begun=True) from error
        return Path(found)

    def blobs(self, folder: Path) -> Path:
        """The files lie in the folder itself."""
        return folder

    def _told(self, error: Exception, *, begun: bool) -> HubError:
        """The error in words, with the way out."""
        where, status = f"{self._name}: {self.title}", _status(error)
        reason = said(error)
        if status == 404:
            return HubError(
                f"{where} has no such model or revision, and there is no such file or folder here; "
                "check the name, and for a private model set MODELSCOPE_API_TOKEN"
            )
        if status in (401, 403):
            return HubError(
                f"{where} refuses ({reason}); accept the model's terms on its page and set "
                "MODELSCOPE_API_TOKEN to your token"
            )
        if begun:
            return HubError(
                f"{where} broke off the download ({reason}); whole files are kept: start again to "
                "fetch the rest"
            )
        if status is None or status >= 500:
            return Unreachable(f"the hub cannot be reached ({reason})")
        return HubError(f"{where} refuses: {reason}")


def _status(error: BaseException | None) -> int | None:
    """The HTTP status that an error, or what caused it, tells of."""
    while error is not None:
        found = getattr(error, "status_code", None)
        found = found or getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(found, int):
            return found
        error = error.__cause__ or error.__context__
    return None
