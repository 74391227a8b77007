// Linux lends tile registers to a process that asks.
#include "abi.h"

#if defined(__AMX_TILE__) && defined(__linux__)
#include <cerrno>
#include <sys/syscall.h>
#include <unistd.h>

EXPORT int32_t anychip_ask_for_tiles() {
  constexpr int REQUEST = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0 ? 0 : errno;
}
#else
EXPORT int32_t anychip_ask_for_tiles() { return 0; }
#endif

#ifdef ANYCHIP_TILES_EMULATED
#include "tiles_emulated.h"

// What the calling thread has asked of its tiles since it began; how many numbers that are.
EXPORT int64_t anychip_tile_counts(int64_t* counts) {
  std::memcpy(counts, anychip::emulated::unit.counts, sizeof anychip::emulated::unit.counts);
  return anychip::emulated::KINDS;
}
#endif
