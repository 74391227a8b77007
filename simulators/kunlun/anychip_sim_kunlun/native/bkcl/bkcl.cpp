// The entry points: arguments that the host can see are checked here, the rest is queued.
#include "xpu/bkcl.h"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives.h"
#include "group.h"
#include "reduce.h"

struct BKCLContext {
    int rank, device, world;  // Paddle reads these three through the handle
    std::shared_ptr<bkclsim::Comm> comm;
};

namespace {

using bkclsim::Call;
using bkclsim::Comm;
using bkclsim::Failure;
using bkclsim::Kind;

// Contexts that are alive, so that a stale handle is refused and not followed. Never destroyed:
// queues may still run while the process ends.
struct Contexts {
    std::mutex lock;
    std::map<BKCLContext_t, std::unique_ptr<BKCLContext>> living;
};

Contexts& contexts() {
    static Contexts& all = *new Contexts;
    return all;
}

std::shared_ptr<Comm> find(BKCLContext_t ctx) {
    std::lock_guard<std::mutex> guard(contexts().lock);
    const auto found = contexts().living.find(ctx);
    return found == contexts().living.end() ? nullptr : found->second->comm;
}

std::shared_ptr<Comm> remove(BKCLContext_t ctx) {
    std::lock_guard<std::mutex> guard(contexts().lock);
    const auto found = contexts().living.find(ctx);
    if (found == contexts().living.end()) return nullptr;
    auto comm = found->second->comm;
    contexts().living.erase(found);
    return comm;
}

BKCLContext_t add(const std::shared_ptr<Comm>& comm) {
    auto context = std::make_unique<BKCLContext>(
        BKCLContext{comm->rank, comm->device, comm->world, comm});
    const BKCLContext_t handle = context.get();
    std::lock_guard<std::mutex> guard(contexts().lock);
    contexts().living[handle] = std::move(context);
    return handle;
}

BKCLResult_t refuse(const char* call, const std::string& why) {
    bkclsim::complain(std::string(call) + ": " + why);
    return BKCL_INVALID_ARGUMENT;
}

// Null, or what is wrong with an operation's arguments.
const char* fault_of(const Comm* comm, const void* send, const void* recv, uint64_t count,
                     BKCLDataType dtype) {
    if (comm == nullptr) return "no such context";
    if (bkclsim::size_of(dtype) == 0) return "no such data type";
    if (count != 0 && (send == nullptr || recv == nullptr)) return "a null buffer";
    return nullptr;
}

const char* fault_of(const Comm& comm, const Call& call) {
    if (call.op < BKCL_ADD || call.op >= BKCL_NUM_OPS) return "no such reduction";
    if (call.root < 0 || call.root >= comm.world) return "the root is no rank";
    return nullptr;
}

// Where only one side of a call matters to this rank, the other may be null.
const void* or_other(const void* buffer, const void* other) {
    return buffer == nullptr ? other : buffer;
}

BKCLResult_t collective(const char* name, BKCLContext_t ctx, const Call& call,
                        XPUStream stream) {
    const auto comm = find(ctx);
    const bool away = comm != nullptr && comm->rank != call.root;
    const bool no_send = call.kind == Kind::broadcast && away;
    const bool no_recv = call.kind == Kind::reduce && away;
    const void* send = no_send ? or_other(call.send, call.recv) : call.send;
    const void* recv = no_recv ? or_other(call.recv, call.send) : call.recv;
    const char* fault = fault_of(comm.get(), send, recv, call.count, call.dtype);
    if (fault == nullptr) fault = fault_of(*comm, call);
    if (fault != nullptr) return refuse(name, fault);
    return bkclsim::submit(comm, stream, name, [comm, call] { bkclsim::run(*comm, call); });
}

BKCLResult_t message(const char* name, BKCLContext_t ctx, bool outgoing, const void* buffer,
                     size_t count, int peer, BKCLDataType dtype, XPUStream stream) {
    const auto comm = find(ctx);
    const char* fault = fault_of(comm.get(), buffer, buffer, count, dtype);
    if (fault == nullptr && (peer < 0 || peer >= comm->world)) fault = "the peer is no rank";
    if (fault != nullptr) return refuse(name, fault);
    return bkclsim::submit(comm, stream,
                           {outgoing, peer, buffer, count * bkclsim::size_of(dtype), dtype});
}

BKCLResult_t make(std::shared_ptr<Comm>* comm, int rank, int nranks, int device) {
    try {
        *comm = std::make_shared<Comm>(rank, nranks, device);
        return BKCL_SUCCESS;
    } catch (const Failure& failure) {
        bkclsim::complain(failure.text);
        return failure.status;
    }
}

}  // namespace

BKCLResult_t bkcl_get_unique_id(BKCLUniqueId* id) {
    if (id == nullptr) return refuse("bkcl_get_unique_id", "a null id");
    try {
        *id = bkclsim::Segment::create();
        return BKCL_SUCCESS;
    } catch (const Failure& failure) {
        bkclsim::complain(failure.text);
        return failure.status;
    }
}

BKCLResult_t bkcl_init_rank(BKCLContext_t* ctx, int rank, int nranks, const BKCLUniqueId* id) {
    if (ctx == nullptr || id == nullptr) return refuse("bkcl_init_rank", "a null argument");
    if (nranks < 1 || nranks > bkclsim::kMaxRanks || rank < 0 || rank >= nranks) {
        return refuse("bkcl_init_rank", "rank " + std::to_string(rank) + " of " +
                                            std::to_string(nranks) + " ranks");
    }
    int device = 0;
    const int found = xpu_current_device(&device);
    if (found != XPU_SUCCESS) {
        bkclsim::complain(std::string("bkcl_init_rank: ") + xpu_strerror(found));
        return BKCL_RUNTIME_ERROR;
    }
    std::shared_ptr<Comm> comm;
    BKCLResult_t status = make(&comm, rank, nranks, device);
    if (status == BKCL_SUCCESS) status = bkclsim::join(comm, *id);
    if (status == BKCL_SUCCESS) *ctx = add(comm);
    return status;
}

BKCLResult_t bkcl_comm_init_all(BKCLContext_t* ctxs, int ndev, const int* devs) {
    if (ctxs == nullptr || devs == nullptr || ndev < 1 || ndev > bkclsim::kMaxRanks) {
        return refuse("bkcl_comm_init_all", "no devices, or nowhere to put the contexts");
    }
    BKCLUniqueId id;
    BKCLResult_t status = bkcl_get_unique_id(&id);
    std::vector<std::shared_ptr<Comm>> comms(static_cast<size_t>(ndev));
    for (int i = 0; status == BKCL_SUCCESS && i < ndev; ++i) {
        status = make(&comms[static_cast<size_t>(i)], i, ndev, devs[i]);
    }
    if (status == BKCL_SUCCESS) {
        status = bkclsim::join_together(comms, std::vector<BKCLUniqueId>(comms.size(), id));
    }
    for (int i = 0; status == BKCL_SUCCESS && i < ndev; ++i) {
        ctxs[i] = add(comms[static_cast<size_t>(i)]);
    }
    return status;
}

BKCLResult_t bkcl_destroy_context(BKCLContext_t ctx) {
    // Work still queued holds the communicator itself.
    return remove(ctx) ? BKCL_SUCCESS : refuse("bkcl_destroy_context", "no such context");
}

BKCLResult_t bkcl_comm_abort(BKCLContext_t ctx) {
    const auto comm = remove(ctx);
    if (comm == nullptr) return refuse("bkcl_comm_abort", "no such context");
    comm->abort();
    return BKCL_SUCCESS;
}

BKCLResult_t bkcl_comm_count(BKCLContext_t ctx, int* count) {
    const auto comm = find(ctx);
    if (comm == nullptr || count == nullptr) return refuse("bkcl_comm_count", "a bad argument");
    *count = comm->world;
    return BKCL_SUCCESS;
}

BKCLResult_t bkcl_comm_user_rank(BKCLContext_t ctx, int* rank) {
    const auto comm = find(ctx);
    if (comm == nullptr || rank == nullptr) {
        return refuse("bkcl_comm_user_rank", "a bad argument");
    }
    *rank = comm->rank;
    return BKCL_SUCCESS;
}

BKCLResult_t bkcl_all_reduce(BKCLContext_t ctx, const void* sendbuf, void* recvbuf, size_t count,
                             BKCLDataType dtype, BKCLOp op, XPUStream stream) {
    return collective("bkcl_all_reduce", ctx,
                      {Kind::all_reduce, sendbuf, recvbuf, count, dtype, op}, stream);
}

BKCLResult_t bkcl_all_gather(BKCLContext_t ctx, const void* sendbuf, size_t sendcount,
                             void* recvbuf, BKCLDataType dtype, XPUStream stream) {
    return collective("bkcl_all_gather", ctx,
                      {Kind::all_gather, sendbuf, recvbuf, sendcount, dtype}, stream);
}

BKCLResult_t bkcl_reduce_scatter(BKCLContext_t ctx, const void* sendbuf, void* recvbuf,
                                 size_t recvcount, BKCLDataType dtype, BKCLOp op,
                                 XPUStream stream) {
    return collective("bkcl_reduce_scatter", ctx,
                      {Kind::reduce_scatter, sendbuf, recvbuf, recvcount, dtype, op}, stream);
}

BKCLResult_t bkcl_broadcast(BKCLContext_t ctx, const void* sendbuf, void* recvbuf, size_t count,
                            BKCLDataType dtype, int root, XPUStream stream) {
    return collective("bkcl_broadcast", ctx,
                      {Kind::broadcast, sendbuf, recvbuf, count, dtype, BKCL_ADD, root}, stream);
}

BKCLResult_t bkcl_reduce(BKCLContext_t ctx, const void* sendbuf, void* recvbuf, size_t count,
                         BKCLDataType dtype, BKCLOp op, int root, XPUStream stream) {
    return collective("bkcl_reduce", ctx,
                      {Kind::reduce, sendbuf, recvbuf, count, dtype, op, root}, stream);
}

BKCLResult_t bkcl_all_to_all(BKCLContext_t ctx, const void* sendbuf, size_t count, void* recvbuf,
                             BKCLDataType dtype, XPUStream stream) {
    return collective("bkcl_all_to_all", ctx,
                      {Kind::all_to_all, sendbuf, recvbuf, count, dtype}, stream);
}

BKCLResult_t bkcl_all_to_all_v(BKCLContext_t ctx, const void* sendbuf, const size_t* sendcounts,
                               const size_t* senddispls, BKCLDataType sendtype, void* recvbuf,
                               const size_t* recvcounts, const size_t* recvdispls,
                               BKCLDataType recvtype, XPUStream stream) {
    const char* name = "bkcl_all_to_all_v";
    const auto comm = find(ctx);
    const char* fault = fault_of(comm.get(), sendcounts, recvcounts, 1, sendtype);
    if (fault == nullptr) fault = fault_of(comm.get(), senddispls, recvdispls, 1, recvtype);
    if (fault != nullptr) return refuse(name, fault);
    const bkclsim::Parts parts{sendbuf, sendcounts, senddispls, sendtype,
                               recvbuf, recvcounts, recvdispls, recvtype};
    return bkclsim::submit(comm, stream, name,
                           [comm, parts] { bkclsim::all_to_all_v(*comm, parts); });
}

BKCLResult_t bkcl_send(BKCLContext_t ctx, const void* sendbuf, size_t count, int peer,
                       BKCLDataType dtype, XPUStream stream) {
    return message("bkcl_send", ctx, true, sendbuf, count, peer, dtype, stream);
}

BKCLResult_t bkcl_recv(BKCLContext_t ctx, void* recvbuf, size_t count, int peer,
                       BKCLDataType dtype, XPUStream stream) {
    return message("bkcl_recv", ctx, false, recvbuf, count, peer, dtype, stream);
}

BKCLResult_t bkcl_group_start() {
    bkclsim::open_group();
    return BKCL_SUCCESS;
}

BKCLResult_t bkcl_group_end() { return bkclsim::close_group(); }
