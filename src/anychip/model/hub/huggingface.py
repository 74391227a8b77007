"""Hugging Face's hub, or what HF_ENDPOINT names, through its own client and cache.

The client reads HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE and its other variables itself.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from anychip.model.hub.errors import HubError, Unreachable
from anychip.model.hub.source import Listing, ModelOnHub, RemoteFile, disk_error, said

# Whatever carries the client's requests: the bases of its own error are that library's.
_TRANSPORT: tuple[type[BaseException], ...] = (*HfHubHTTPError.__bases__, ConnectionError)


class HuggingFace(ModelOnHub):
    """A model on the hub."""

    title = "Hugging Face"

    def listing(self) -> Listing:
        """The files of the revision, with sizes and the names of their blobs."""
        try:
            info = HfApi().model_info(self._id, revision=self._revision, files_metadata=True)
        except Exception as error:
            raise self._told(error) from error
        return {
            file.rfilename: RemoteFile(
                file.size or 0, file.lfs.sha256 if file.lfs is not None else file.blob_id
            )
            for file in info.siblings or ()
        }

    def cached(self) -> Path | None:
        """The snapshot in the cache; no pattern is wanted, so that none can be missing."""
        try:
            found = snapshot_download(
                self._id,
                revision=self._revision,
                cache_dir=self._cache,
                local_files_only=True,
                allow_patterns=[],
            )
        except LocalEntryNotFoundError:
            return None
        except Exception as error:
            raise self._told(error) from error
        return Path(str(found))

    def fetch(self, files: Sequence[str]) -> Path:
        """Bring these files into the cache."""
        try:
            found = snapshot_download(
                self._id,
                revision=self._revision,
                cache_dir=self._cache,
                allow_patterns=[glob.escape(file) for file in files],
            )
        except Exception as error:
            raise disk_error(error, self._folder) or self._told(error, begun=True) from error
        return Path(str(found))

    def blobs(self, folder: Path) -> Path:
        """Beside `snapshots`, whose files are links into it."""
        return folder.parent.parent / "blobs"

    def _told(self, error: Exception, *, begun: bool = False) -> HubError:
        """The error in words, with the way out."""
        where = f"{self._name}: {self.title}"
        if isinstance(error, GatedRepoError):
            text = (
                f"says that it is gated: accept its terms at {constants.ENDPOINT}/{self._id}, "
                "then set HF_TOKEN to your token or run `hf auth login`"
            )
        elif isinstance(error, RevisionNotFoundError):
            text = "has no such revision; leave out --revision for the default one"
        elif isinstance(error, RepositoryNotFoundError):
            text = (
                "has no such model, and there is no such file or folder here; check the name, and "
                "for a private model set HF_TOKEN to your token"
            )
        elif isinstance(error, HFValidationError):
            text = f"takes no such name: {error}"
        else:
            return self._broken(error, where, begun)
        return HubError(f"{where} {text}")

    def _broken(self, error: Exception, where: str, begun: bool) -> HubError:
        """The error where it is no answer about the model."""
        if isinstance(error, OfflineModeIsEnabled):
            return Unreachable("HF_HUB_OFFLINE is set, so the hub is not asked")
        reason = said(error)
        if begun:
            return HubError(
                f"{where} broke off the download ({reason}); whole files are kept in "
                f"{self._folder}: start again to fetch the rest"
            )
        refused = isinstance(error, HfHubHTTPError) and error.response.status_code < 500
        if isinstance(error, _TRANSPORT) and not refused:
            return Unreachable(f"{constants.ENDPOINT} cannot be reached ({reason})")
        return HubError(f"{where} refuses, or its client failed: {reason}")

    @property
    def _folder(self) -> str:
        return self._cache or constants.HF_HUB_CACHE
