// Calls between bkcl_group_start and bkcl_group_end wait here, one list a thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm.h"
#include "transfers.h"

namespace bkclsim {

bool in_group();
void open_group();
BKCLResult_t close_group();

// Outside of a group both happen at once.
BKCLResult_t submit(const std::shared_ptr<Comm>& comm, XPUStream stream, const char* name,
                    std::function<void()> body);
BKCLResult_t submit(const std::shared_ptr<Comm>& comm, XPUStream stream,
                    const Transfer& transfer);

// Outside of a group it returns when all ranks have come.
BKCLResult_t join(const std::shared_ptr<Comm>& comm, const BKCLUniqueId& id);

// Ranks of one process have to come at the same time: a thread each. Returns the first error.
BKCLResult_t join_together(const std::vector<std::shared_ptr<Comm>>& comms,
                           const std::vector<BKCLUniqueId>& ids);

}  // namespace bkclsim
