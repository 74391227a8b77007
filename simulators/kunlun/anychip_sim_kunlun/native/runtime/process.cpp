#include "process.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "device.h"
#include "faults.h"
#include "oldest_driver.h"

namespace xpusim {

namespace {

thread_local int current_device = 0;
std::atomic<bool> forked{false};

void mark_forked() { forked = true; }

// Numbers of the cards that XPU_VISIBLE_DEVICES leaves to this process, in its order; all of them
// where it is not set. That the process counts them from 0, and that a bad entry ends the list,
// are guesses after the CUDA variable that the vendor's stack honours too.
std::vector<int> visible(int count) {
    std::vector<int> chosen;
    const char* text = std::getenv("XPU_VISIBLE_DEVICES");
    if (!text) {
        for (int i = 0; i < count; ++i) chosen.push_back(i);
        return chosen;
    }
    for (const char* rest = text; *rest;) {
        char* end = nullptr;
        long number = std::strtol(rest, &end, 10);
        if (end == rest || number < 0 || number >= count) break;
        chosen.push_back(static_cast<int>(number));
        if (*end != ',') break;
        rest = end + 1;
    }
    return chosen;
}

bool older(const uint32_t (&driver)[4], const uint32_t (&needed)[4]) {
    for (int i = 0; i < 4; ++i) {
        if (driver[i] != needed[i]) return driver[i] < needed[i];
    }
    return false;
}

}  // namespace

Process& Process::self() {
    static Process* process = new Process();  // never destroyed: queues may outlive main
    return *process;
}

Process::Process() {
    faults();  // a misspelt fault stops the process before anything works
    pthread_atfork(nullptr, nullptr, mark_forked);
    std::atexit(stop_queues);
    if (!file_.open(board_path(reinterpret_cast<const void*>(&stop_queues), 3))) {
        std::fprintf(stderr, "[XPURT simulator] no device: %s\n", file_.problem().c_str());
        problem_ = XPUERR_NODEV;
        return;
    }
    refuse_absent_cards(board()->devices);
    if (!driver_fits()) {
        problem_ = XPUERR_VERSION;
        return;
    }
    for (int physical : visible(static_cast<int>(board()->devices))) {
        devices_.push_back(std::make_unique<Device>(count(), physical, &board()->device[physical]));
    }
}

bool Process::driver_fits() const {
    const uint32_t(&driver)[4] = board()->driver;
    bool fits = driver[0] == XPURT_VERSION_MAJOR && !older(driver, oldest_driver);
    if (!fits) {
        std::fprintf(stderr,
                     "[XPURT simulator] driver %u.%u.%u.%u does not fit runtime %d.%d.%d, which "
                     "needs %u.%u.%u.%u or later of the same major number\n",
                     driver[0], driver[1], driver[2], driver[3], XPURT_VERSION_MAJOR,
                     XPURT_VERSION_MINOR, XPURT_VERSION_THIRD, oldest_driver[0], oldest_driver[1],
                     oldest_driver[2], oldest_driver[3]);
    }
    return fits;
}

int Process::ready() const { return forked ? static_cast<int>(XPUERR_UNINIT) : problem_; }

int Process::device(int number, Device** device) {
    if (int code = ready()) return code;
    if (number < 0 || number >= count()) return XPUERR_INVALID_DEVICE;
    Device& found = *devices_[static_cast<size_t>(number)];
    if (!found.opened) {
        if (int code = open(found)) return code;
    }
    if (found.lost) return XPUERR_HWEXCEPTION;
    *device = &found;
    return XPU_SUCCESS;
}

int Process::open(Device& device) {
    std::lock_guard<std::mutex> guard(opening_);
    if (device.opened) return XPU_SUCCESS;
    {
        std::lock_guard<BoardFile> board(file_);
        reclaim(*device.card);
        if (usage(*device.card).lost) return XPUERR_HWEXCEPTION;
        device.entry = claim(*device.card, file_.started());
    }
    if (!device.entry) return XPUERR_BUSY;
    device.memory = std::make_unique<Memory>(file_, *device.card, *device.entry);
    device.queue = std::make_shared<Queue>(device);
    device.opened = true;
    return XPU_SUCCESS;
}

int Process::current_number() const { return current_device; }

void Process::set_current(int number) { current_device = number; }

int Process::current(Device** found) { return device(current_device, found); }

int Process::queue(XPUStream stream, std::shared_ptr<Queue>* queue) {
    Device* device = nullptr;
    if (int code = current(&device)) return code;
    if (!stream) {
        *queue = device->queue;
        return XPU_SUCCESS;
    }
    *queue = streams.find(stream);
    if (*queue) return XPU_SUCCESS;
    return streams.was(stream) ? XPUERR_USEAFCLOSE : XPUERR_INVALID_PARAM;
}

std::vector<std::shared_ptr<Queue>> Process::queues_of(const Device& device) {
    std::vector<std::shared_ptr<Queue>> found{device.queue};
    for (auto& queue : streams.all()) {
        if (&queue->device() == &device) found.push_back(queue);
    }
    return found;
}

void Process::lose(Device& device) {
    device.lost = true;
    __atomic_store_n(&device.entry->lost, 1u, __ATOMIC_RELAXED);
    for (auto& queue : queues_of(device)) queue->fail(XPUERR_HWEXCEPTION);
}

void Process::taint_others(Device& device, const Queue* failed) {
    device.tainted = true;
    for (auto& queue : queues_of(device)) {
        if (queue.get() != failed) queue->taint(XPUERR_EVENTWAIT);
    }
}

Memory* Process::memory_of(const void* address, int* number) {
    for (auto& device : devices_) {
        if (!device->opened || !device->memory->contains(address)) continue;
        if (number) *number = device->number;
        return device->memory.get();
    }
    return nullptr;
}

}  // namespace xpusim
