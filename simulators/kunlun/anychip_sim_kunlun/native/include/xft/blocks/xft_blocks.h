// All blocks that this tree has.
#pragma once

#include "core_attention_block.h"
