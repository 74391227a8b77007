// The oldest driver that this runtime works with. The rule is a guess: public logs show drivers
// and runtimes of one major number together, with other numbers far apart.
#pragma once

#include <cstdint>

#include "xpu/version.h"

namespace xpusim {

#if defined(XPUSIM_OLDEST_DRIVER)
constexpr uint32_t oldest_driver[4] = {XPUSIM_OLDEST_DRIVER};  // 5,0,21,0
#else
constexpr uint32_t oldest_driver[4] = {XPURT_VERSION_MAJOR, 0,
                                       XPURT_VERSION_MAJOR >= 5 ? 21 : 0, 0};
#endif

}  // namespace xpusim
