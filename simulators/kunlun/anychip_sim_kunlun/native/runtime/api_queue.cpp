// Entry points: streams, events, waiting.
#include "answer.h"
#include "faults.h"
#include "process.h"
#include "xpu/runtime.h"

using namespace xpusim;

namespace {

constexpr size_t most_streams = 256;  // the vendor's programming manual: 2^8 for a process

int create_stream(XPUStream* stream) {
    Device* device = nullptr;
    if (int code = Process::self().current(&device)) return code;
    if (!stream) return XPUERR_INVALID_PARAM;
    if (device->tainted) return XPUERR_EVENTWAIT;
    // Which code the vendor gives here is a guess.
    if (Process::self().streams.all().size() >= most_streams) return XPUERR_BUSY;
    *stream = Process::self().streams.add(std::make_shared<Queue>(*device));
    return XPU_SUCCESS;
}

int destroy_stream(XPUStream stream) {
    Process& process = Process::self();
    if (int code = process.ready()) return code;
    std::shared_ptr<Queue> queue = process.streams.remove(stream);
    if (!queue) {
        return process.streams.was(stream) ? XPUERR_USEAFCLOSE : XPUERR_INVALID_PARAM;
    }
    queue->close();
    return XPU_SUCCESS;
}

// Events belong to the card that was current when they were made, as in the public driver.
int find(XPUEvent handle, const Queue& queue, std::shared_ptr<Event>* event) {
    *event = Process::self().events.find(handle);
    bool fits = *event && (*event)->device() == queue.device().number;
    return fits ? XPU_SUCCESS : XPUERR_INVALID_PARAM;
}

int record(XPUEvent handle, XPUStream stream) {
    std::shared_ptr<Queue> queue;
    Task task{};
    if (int code = Process::self().queue(stream, &queue)) return code;
    if (int code = find(handle, *queue, &task.record)) return code;
    task.name = "event record";
    return queue->submit(std::move(task));
}

int stream_wait(XPUStream stream, XPUEvent handle) {
    std::shared_ptr<Queue> queue;
    std::shared_ptr<Event> event;
    if (int code = Process::self().queue(stream, &queue)) return code;
    if (int code = find(handle, *queue, &event)) return code;
    uint64_t number = event->last();
    if (number == 0) return XPUERR_INVALID_PARAM;
    if (faults().no_event_order) return XPU_SUCCESS;
    Task task{};
    task.name = "event wait";
    task.body = [event, number, waits = queue.get()] {
        if (int code = event->wait(number)) waits->taint(code);
    };
    return queue->submit(std::move(task));
}

// The error of the card's default queue comes back here too: the public driver answers with the
// error of the session that asks. That the default queue is that session is a guess.
int event_wait(XPUEvent handle) {
    Device* device = nullptr;
    std::shared_ptr<Event> event;
    if (int code = Process::self().current(&device)) return code;
    if (int code = find(handle, *device->queue, &event)) return code;
    if (int code = event->wait(event->last())) return code;
    return device->lost ? static_cast<int>(XPUERR_HWEXCEPTION) : device->queue->error();
}

int wait(XPUStream stream) {
    std::shared_ptr<Queue> queue;
    if (int code = Process::self().queue(stream, &queue)) return code;
    return queue->wait();
}

}  // namespace

int xpu_stream_create(XPUStream* pstream) { return answer(create_stream(pstream)); }

int xpu_stream_destroy(XPUStream stream) { return answer(destroy_stream(stream)); }

int xpu_stream_wait_event(XPUStream stream, XPUEvent event) {
    return answer(stream_wait(stream, event));
}

int xpu_wait(XPUStream stream) { return answer(wait(stream)); }

int xpu_event_create(XPUEvent* pevent) {
    Device* device = nullptr;
    if (int code = Process::self().current(&device)) return answer(code);
    if (!pevent) return answer(XPUERR_INVALID_PARAM);
    *pevent = Process::self().events.add(std::make_shared<Event>(device->number));
    return XPU_SUCCESS;
}

int xpu_event_record(XPUEvent event, XPUStream stream) { return answer(record(event, stream)); }

int xpu_event_wait(XPUEvent event) { return answer(event_wait(event)); }

int xpu_event_destroy(XPUEvent event) {
    if (int code = Process::self().ready()) return answer(code);
    bool found = Process::self().events.remove(event) != nullptr;
    return answer(found ? XPU_SUCCESS : XPUERR_INVALID_PARAM);
}

#if XPURT_VERSION_MAJOR >= 5
// Success also for an event that was never recorded, as measured on the real stack. The code of an
// event that is still to come is a guess: public callers only compare with success.
int xpu_event_query(XPUEvent handle) {
    Process& process = Process::self();
    if (int code = process.ready()) return answer(code);
    std::shared_ptr<Event> event = process.events.find(handle);
    if (!event) return answer(XPUERR_INVALID_PARAM);
    Device* device = nullptr;
    if (int code = process.device(event->device(), &device)) return answer(code);
    return answer(event->status());
}
#endif
