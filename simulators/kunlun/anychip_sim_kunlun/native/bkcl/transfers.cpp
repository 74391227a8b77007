#include "transfers.h"

#include <algorithm>
#include <cstring>

#include "reduce.h"
#include "runtime/device.h"

namespace bkclsim {

namespace {

// Both return whether anything moved.
bool push(Comm& comm, Transfer& transfer) {
    Segment& segment = comm.segment();
    Mail& mail = segment.mail(comm.rank, transfer.peer);
    if (mail.full.load() != 0) return false;
    if (transfer.begun && transfer.done == transfer.bytes) {  // and the last chunk was taken
        transfer.over = true;
        return true;
    }
    mail.bytes = std::min<uint64_t>(kMailBytes, transfer.bytes - transfer.done);
    mail.total = transfer.bytes;
    mail.dtype = static_cast<uint32_t>(transfer.dtype);
    if (mail.bytes != 0) std::memcpy(mail.data, transfer.host + transfer.done, mail.bytes);
    transfer.done += mail.bytes;
    transfer.begun = true;
    mail.full.store(1);
    segment.ring(transfer.peer);
    return true;
}

bool pull(Comm& comm, Transfer& transfer) {
    Segment& segment = comm.segment();
    Mail& mail = segment.mail(transfer.peer, comm.rank);
    if (mail.full.load() == 0) return false;
    if (mail.total != transfer.bytes || mail.dtype != static_cast<uint32_t>(transfer.dtype)) {
        throw Failure{BKCL_INTERNAL_ERROR,
                      "rank " + std::to_string(transfer.peer) + " sends " +
                          std::to_string(mail.total) + " bytes of type " +
                          std::to_string(mail.dtype) + ", " + std::to_string(transfer.bytes) +
                          " bytes of type " + std::to_string(transfer.dtype) + " are expected"};
    }
    if (mail.bytes != 0) std::memcpy(transfer.host + transfer.done, mail.data, mail.bytes);
    transfer.done += mail.bytes;
    transfer.over = transfer.done == transfer.bytes;
    mail.full.store(0);
    segment.ring(transfer.peer);
    return true;
}

// One pass over all. Messages of one pair in one direction keep their order.
bool advance(Comm& comm, std::vector<Transfer>& transfers) {
    bool moved = false;
    uint64_t busy[2] = {0, 0};  // ranks, by direction
    for (Transfer& transfer : transfers) {
        const uint64_t bit = uint64_t{1} << transfer.peer;
        if (transfer.over || (busy[transfer.outgoing] & bit) != 0) continue;
        moved |= transfer.outgoing ? push(comm, transfer) : pull(comm, transfer);
        if (!transfer.over) busy[transfer.outgoing] |= bit;
    }
    return moved;
}

const size_t* numbers(Comm& comm, const size_t* device) { return xpusim::at(device, comm.world); }

}  // namespace

void exchange(Comm& comm, std::vector<Transfer> transfers) {
    for (Transfer& transfer : transfers) {
        if (transfer.bytes == 0) continue;
        transfer.host = static_cast<char*>(xpusim::reach(transfer.buffer, transfer.bytes));
    }
    const auto over = [](const Transfer& transfer) { return transfer.over; };
    for (;;) {
        const uint32_t heard = comm.segment().bell();
        comm.segment().check();
        const bool moved = advance(comm, transfers);
        if (std::all_of(transfers.begin(), transfers.end(), over)) return;
        if (!moved) comm.segment().wait_bell(heard);
    }
}

void all_to_all_v(Comm& comm, const Parts& parts) {
    const uint64_t send_size = size_of(parts.send_type), recv_size = size_of(parts.recv_type);
    const size_t* send_counts = numbers(comm, parts.send_counts);
    const size_t* send_at = numbers(comm, parts.send_displacements);
    const size_t* recv_counts = numbers(comm, parts.recv_counts);
    const size_t* recv_at = numbers(comm, parts.recv_displacements);
    std::vector<Transfer> transfers;
    for (int peer = 0; peer < comm.world; ++peer) {
        const char* from = static_cast<const char*>(parts.send) + send_at[peer] * send_size;
        const char* to = static_cast<const char*>(parts.recv) + recv_at[peer] * recv_size;
        transfers.push_back(
            {true, peer, from, send_counts[peer] * send_size, parts.send_type});
        transfers.push_back(
            {false, peer, to, recv_counts[peer] * recv_size, parts.recv_type});
    }
    exchange(comm, std::move(transfers));
}

}  // namespace bkclsim
