// Marks what libxpuapi exports; everything else in the simulator is built hidden.
#pragma once

#define DLL_EXPORT __attribute__((visibility("default")))
