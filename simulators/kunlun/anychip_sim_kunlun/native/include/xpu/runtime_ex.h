// Public code includes this file beside runtime.h and uses nothing that is declared in it alone,
// so that what the vendor's has more than runtime.h is not known.
#pragma once

#include "xpu/runtime.h"
