// What FastDeploy includes as the block library's front.
#pragma once

#include "core/check.h"
#include "core/context.h"
#include "core/param.h"
#include "core/types.h"
