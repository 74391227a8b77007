// Version of the runtime that these headers describe. The tree builder writes the numbers of the
// tree that it makes; a compile may also give them on its command line.
#ifndef XPU_VERSION_H
#define XPU_VERSION_H

#ifndef XPURT_VERSION_MAJOR
#define XPURT_VERSION_MAJOR 5
#endif
#ifndef XPURT_VERSION_MINOR
#define XPURT_VERSION_MINOR 0
#endif
#ifndef XPURT_VERSION_THIRD
#define XPURT_VERSION_THIRD 21
#endif

#endif
