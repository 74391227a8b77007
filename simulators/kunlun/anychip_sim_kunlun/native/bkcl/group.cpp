#include "group.h"

#include <algorithm>
#include <thread>

namespace bkclsim {

namespace {

// What one stream of one communicator does when the group ends: messages first, all together,
// then the collectives in order.
struct Batch {
    std::shared_ptr<Comm> comm;
    XPUStream stream;
    std::vector<Transfer> transfers;
    std::vector<std::function<void()>> bodies;
};

struct Group {
    int depth = 0;
    std::vector<Batch> batches;
    std::vector<std::shared_ptr<Comm>> joining;
    std::vector<BKCLUniqueId> ids;
};

Group& group() {
    static thread_local Group mine;
    return mine;
}

Batch& batch_of(const std::shared_ptr<Comm>& comm, XPUStream stream) {
    auto& batches = group().batches;
    const auto same = [&](const Batch& b) { return b.comm == comm && b.stream == stream; };
    const auto found = std::find_if(batches.begin(), batches.end(), same);
    if (found != batches.end()) return *found;
    batches.push_back({comm, stream, {}, {}});
    return batches.back();
}

BKCLResult_t start(Batch batch) {
    const auto comm = batch.comm;
    const XPUStream stream = batch.stream;
    return Comm::issue(comm, stream, "bkcl_group", [batch = std::move(batch)] {
        if (!batch.transfers.empty()) exchange(*batch.comm, batch.transfers);
        for (const auto& body : batch.bodies) body();
    });
}

BKCLResult_t join_now(Comm& comm, const BKCLUniqueId& id) {
    try {
        comm.join(id);
        return BKCL_SUCCESS;
    } catch (const Failure& failure) {
        complain("rank " + std::to_string(comm.rank) + " cannot join: " + failure.text);
        return failure.status;
    }
}

}  // namespace

bool in_group() { return group().depth > 0; }

void open_group() { ++group().depth; }

BKCLResult_t close_group() {
    if (group().depth == 0) {
        complain("bkcl_group_end without bkcl_group_start");
        return BKCL_INVALID_ARGUMENT;
    }
    if (--group().depth > 0) return BKCL_SUCCESS;
    Group ended;
    std::swap(ended, group());
    BKCLResult_t status = join_together(ended.joining, ended.ids);
    for (Batch& batch : ended.batches) {
        const BKCLResult_t one = start(std::move(batch));
        if (status == BKCL_SUCCESS) status = one;
    }
    return status;
}

BKCLResult_t submit(const std::shared_ptr<Comm>& comm, XPUStream stream, const char* name,
                    std::function<void()> body) {
    if (!in_group()) return Comm::issue(comm, stream, name, std::move(body));
    batch_of(comm, stream).bodies.push_back(std::move(body));
    return BKCL_SUCCESS;
}

BKCLResult_t submit(const std::shared_ptr<Comm>& comm, XPUStream stream,
                    const Transfer& transfer) {
    if (in_group()) {
        batch_of(comm, stream).transfers.push_back(transfer);
        return BKCL_SUCCESS;
    }
    return start({comm, stream, {transfer}, {}});
}

BKCLResult_t join(const std::shared_ptr<Comm>& comm, const BKCLUniqueId& id) {
    if (!in_group()) return join_now(*comm, id);
    group().joining.push_back(comm);
    group().ids.push_back(id);
    return BKCL_SUCCESS;
}

BKCLResult_t join_together(const std::vector<std::shared_ptr<Comm>>& comms,
                           const std::vector<BKCLUniqueId>& ids) {
    std::vector<BKCLResult_t> statuses(comms.size(), BKCL_SUCCESS);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < comms.size(); ++i) {
        threads.emplace_back([&, i] { statuses[i] = join_now(*comms[i], ids[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    const auto bad = [](BKCLResult_t status) { return status != BKCL_SUCCESS; };
    const auto found = std::find_if(statuses.begin(), statuses.end(), bad);
    return found == statuses.end() ? BKCL_SUCCESS : *found;
}

}  // namespace bkclsim
