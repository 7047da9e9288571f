// Streams of the fake driver: launched work runs only when the host waits for it or, with
// FAKE_CUDA_HASTE, at any time. So host memory that is used too early, a missing event, and a
// buffer that is freed too early show.
#pragma once
#include <algorithm>
#include <unistd.h>

#include "state.h"

namespace fake {

// An operation whose turn has come must find its memory allocated, or it was not ordered after the
// allocation.
inline void check_uses(const Operation &operation) {
    for (const Part &part : operation.uses) {
        if (!part->exists) undefined("%s uses memory that another stream has not allocated yet: nothing makes it wait", operation.what.c_str());
        if (part->gone) undefined("%s uses memory that was freed before its turn came", operation.what.c_str());
    }
}

// Runs the operations of `stream` up to number `until`; returns whether all of them are done.
inline bool run(const std::shared_ptr<Stream> &stream, u64 until) {
    while (stream->done < until) {
        // A context that has failed runs nothing any more.
        if (stream->context->failed) {
            stream->waiting.clear();
            stream->done = stream->queued;
            return true;
        }
        Operation &next = stream->waiting.front();
        for (const Point &point : next.after) {
            if (!run(point.stream, point.at)) return false;
        }
        if (stream->context->failed) continue;
        check_uses(next);
        if (next.step && !next.step()) return false;
        if (stream->context->failed) continue;
        stream->waiting.pop_front();
        stream->done++;
    }
    return true;
}

// Runs some of the pending operations of some of the streams.
inline void hurry() {
    if (!state.hasty) return;
    for (Context &context : state.contexts) {
        for (const auto &stream : std::vector<std::shared_ptr<Stream>>(context.streams)) {
            if (stream->done < stream->queued && state.chance() % 4 == 0) {
                run(stream, stream->done + 1 + state.chance() % (stream->queued - stream->done));
            }
        }
    }
}

inline void launch(const std::shared_ptr<Stream> &stream, Operation operation) {
    Context &context = *stream->context;
    for (const auto &other : context.streams) {
        const bool waits = stream == context.null ? other->blocking : stream->blocking && other == context.null;
        if (waits && other != stream && other->done < other->queued) operation.after.push_back({other, other->queued});
    }
    stream->waiting.push_back(std::move(operation));
    stream->queued++;
    hurry();
}

// Bytes of the pool that `stream` has freed and the host does not know to be free.
inline u64 unseen(const Stream &stream) {
    u64 bytes = 0;
    for (const auto &freed : stream.unseen) bytes += freed.second;
    return bytes;
}

// Bytes of the pool that any stream of `device` has freed and the host does not know to be free.
inline u64 unseen(const Device &device) {
    u64 bytes = 0;
    for (const Context &context : state.contexts) {
        if (context.device != &device) continue;
        for (const auto &stream : context.streams) bytes += unseen(*stream);
    }
    return bytes;
}

// Gives the pool's memory beyond `keep` bytes back to the device, except memory that the host does
// not know to be free.
inline void trim(Device &device, u64 keep) {
    keep = std::max(keep, unseen(device));
    if (device.kept > keep) device.kept = keep;
}

// Waits until all `points`, of one context, are reached. The other streams may go on meanwhile.
inline Code wait(const std::vector<Point> &points) {
    const u64 patience = number("FAKE_CUDA_PATIENCE_MS", 120000) * 1000;
    u64 waited = 0;
    for (const Point &point : points) {
        while (!run(point.stream, point.at)) {
            if (waited > patience) undefined("waits for ever for %s", point.stream->waiting.front().what.c_str());
            state.lock.unlock();
            usleep(200);
            waited += 200;
            state.lock.lock();
        }
    }
    for (const Point &point : points) {
        auto &unseen = point.stream->unseen;
        if (!computes) unseen.erase(unseen.begin(), unseen.upper_bound(point.at));
    }
    const Context &context = *points.front().stream->context;
    trim(*context.device, context.device->threshold);
    return context.failed;
}

// Waits for all operations that `stream` has now.
inline Code wait(const std::shared_ptr<Stream> &stream) {
    std::vector<Point> points = {{stream, stream->queued}};
    for (const auto &other : stream->context->streams) {
        if (stream == stream->context->null && other->blocking) points.push_back({other, other->queued});
    }
    return wait(points);
}

// Loading waits for all of the context, and blocks all other calls of the driver meanwhile.
inline void wait_to_load(Context &context) {
    const u64 patience = number("FAKE_CUDA_PATIENCE_MS", 120000) * 1000;
    u64 waited = 0;
    for (const auto &stream : std::vector<std::shared_ptr<Stream>>(context.streams)) {
        state.counts["loading"] += stream->done < stream->queued;
        for (; !run(stream, stream->queued); waited += 200) {
            if (waited > patience) undefined("waits for ever for %s, with the lock of the context", stream->waiting.front().what.c_str());
            usleep(200);
        }
    }
}

inline bool is_pending(const Part &part, std::string &by) {
    for (const Context &context : state.contexts) {
        for (const auto &stream : context.streams) {
            for (const Operation &operation : stream->waiting) {
                if (std::find(operation.uses.begin(), operation.uses.end(), part) != operation.uses.end()) {
                    by = operation.what;
                    return true;
                }
            }
        }
    }
    return false;
}

} // namespace fake
