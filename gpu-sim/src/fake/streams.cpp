// The fake driver's calls for streams and events.
#include "call.h"

using namespace fake;

namespace {

enum { NON_BLOCKING = 1 };

} // namespace

extern "C" {

int cuStreamCreate(void **handle, unsigned flags) {
    CALL("cuStreamCreate", CONTEXT);
    if (flags > NON_BLOCKING) return refuse(INVALID_VALUE, "flags %u", flags);
    current->streams.emplace_back(new Stream{current, flags != NON_BLOCKING});
    *handle = current->streams.back().get();
    return SUCCESS;
}

int cuStreamDestroy_v2(void *handle) {
    CALL("cuStreamDestroy", CONTEXT);
    STREAM(handle);
    if (on == current->null) return refuse(INVALID_HANDLE, "the null stream");
    // The real driver returns at once and goes on; here nothing would notice its end.
    wait(on);
    current->streams.erase(std::find(current->streams.begin(), current->streams.end(), on));
    return SUCCESS;
}

int cuStreamSynchronize(void *handle) {
    CALL("cuStreamSynchronize", CONTEXT);
    STREAM(handle);
    return wait(on);
}

int cuCtxSynchronize() {
    CALL("cuCtxSynchronize", CONTEXT);
    for (const auto &stream : std::vector<std::shared_ptr<Stream>>(current->streams)) wait(stream);
    return current->failed;
}

int cuStreamWaitEvent(void *handle, void *event_handle, unsigned flags) {
    CALL("cuStreamWaitEvent", CONTEXT);
    STREAM(handle);
    const Event *event = nullptr;
    for (const Context &context : state.contexts) {
        for (const Event *at : context.events) event = at == event_handle ? at : event;
    }
    if (!event || flags) return refuse(INVALID_HANDLE, "no event, or flags");
    if (!event->recorded) undefined("the event was not recorded, so nothing is waited for");
    launch(on, {calling, nullptr, {}, {event->point}});
    return SUCCESS;
}

int cuEventCreate(void **handle, unsigned flags) {
    CALL("cuEventCreate", CONTEXT);
    if (flags & ~3u) return refuse(INVALID_VALUE, "flags %u", flags);
    Event *event = new Event{current};
    current->events.insert(event);
    *handle = event;
    return SUCCESS;
}

int cuEventRecord(void *event_handle, void *handle) {
    CALL("cuEventRecord", CONTEXT);
    STREAM(handle);
    Event *event = (Event *)event_handle;
    if (!current->events.count(event)) return refuse(INVALID_HANDLE, "no event of the stream's context");
    event->recorded = true;
    event->point = {on, on->queued};
    return SUCCESS;
}

int cuEventQuery(void *handle) {
    CALL("cuEventQuery", CONTEXT);
    Event *event = (Event *)handle;
    if (!current->events.count(event)) return refuse(INVALID_HANDLE, "no event of the current context");
    const std::shared_ptr<Stream> on = event->point.stream;
    if (!event->recorded) undefined("the event was not recorded");
    if (on->done < event->point.at && (++on->asked <= state.asks || !run(on, event->point.at))) return NOT_READY;
    return current->failed;
}

int cuEventSynchronize(void *handle) {
    CALL("cuEventSynchronize", CONTEXT);
    Event *event = (Event *)handle;
    if (!current->events.count(event)) return refuse(INVALID_HANDLE, "no event of the current context");
    if (!event->recorded) undefined("the event was not recorded");
    return wait(std::vector<Point>{event->point});
}

int cuEventDestroy_v2(void *handle) {
    CALL("cuEventDestroy", INITIALISED);
    for (Context &context : state.contexts) {
        if (context.events.erase((Event *)handle)) {
            delete (Event *)handle;
            return SUCCESS;
        }
    }
    return refuse(INVALID_HANDLE, "no event that is there");
}
}
