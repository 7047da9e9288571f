// NCCL between fake GPUs (driver.cpp) of one machine, for tests: libnccl.so.2 with the functions
// that this crate looks up, for communicators that do not block. Ranks are threads or processes,
// and meet in a file that all of them map.
//
// Every call returns at once; operations progress when a caller asks for their state. A group of
// messages comes onto its stream once all its ranks have called for it, and runs there like other
// work. As with NCCL, ranks that share a device are refused, and messages whose lengths differ
// never arrive, nor do messages from ranks that have died. On a device groups run in launch order,
// whatever their streams: where ranks launch groups of two communicators in different orders, all
// hang. A case that NCCL's documentation leaves open ends the process with a line, and so does a
// communicator that is not given back.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <fcntl.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

enum Result { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, IN_PROGRESS = 7 };
constexpr int VERSION = 22809, MOST_RANKS = 8, BYTES = 1;
constexpr uint32_t MAGIC = 0xcafebeef;

// Bytes from one rank to another: the length of each message, then the message.
struct Pipe {
    std::atomic<uint64_t> written, read;
    char bytes[64 << 10];
};

// State shared by the ranks of a group; zero at first.
struct Meeting {
    std::atomic<int> size, taken[MOST_RANKS], device[MOST_RANKS], joined;
    // Whether each rank has called for messages with each other rank.
    std::atomic<int> called[MOST_RANKS][MOST_RANKS];
    Pipe pipes[MOST_RANKS][MOST_RANKS];
};

struct Message {
    bool is_sent;
    int peer;
    char *at;
    uint64_t bytes;
    // Of its length and contents.
    uint64_t moved = 0;
    bool differs = false;
};

struct Group {
    void *stream;
    std::vector<Message> messages;
};

struct Comm {
    enum { JOINING, READY, CALLING, FINALISING, FINALISED, FAILED } state = JOINING;
    int rank, size;
    void *context;
    std::string path;
    Meeting *meeting;
    Group group;
    // Number of queries for its state since a group was called.
    int asked = 0;
    std::shared_ptr<std::atomic<bool>> given_up = std::make_shared<std::atomic<bool>>(false);
    std::shared_ptr<std::atomic<int>> running = std::make_shared<std::atomic<int>>(0);
};

struct Config {
    size_t size;
    uint32_t magic, version;
    int blocking;
};

struct Id {
    char path[128];
};

struct All {
    std::mutex lock;
    std::set<Comm *> comms;
    ~All() {
        if (comms.empty()) return;
        fprintf(stderr, "fake libnccl.so.2: %zu communicators were neither destroyed nor aborted\n", comms.size());
        fflush(stderr);
        _exit(98);
    }
};

All all;
thread_local std::string last;
thread_local int depth = 0;
thread_local std::vector<std::pair<Comm *, Group>> called;

Result refuse(Result result, const std::string &why) {
    last = why;
    fprintf(stderr, "fake libnccl.so.2: %s\n", why.c_str());
    return result;
}

[[noreturn]] void undefined(const char *why) {
    fprintf(stderr, "fake libnccl.so.2: %s\n", why);
    abort();
}

// --- the driver, which is loaded ---

typedef std::vector<std::pair<uint64_t, size_t>> Ranges;

template <typename T> T *driver(const char *name) {
    void *library = dlopen("libcuda.so", RTLD_NOW | RTLD_NOLOAD);
    if (!library) library = dlopen("libcuda.so", RTLD_NOW);
    return library ? (T *)dlsym(library, name) : nullptr;
}

// --- messages ---

// Moves as many of `bytes` as fit and are available, starting at offset `moved`.
uint64_t write(Pipe &pipe, const char *from, uint64_t bytes) {
    const uint64_t at = pipe.written, room = sizeof pipe.bytes - (at - pipe.read);
    const uint64_t count = std::min(bytes, room);
    for (uint64_t i = 0; i < count; i++) pipe.bytes[(at + i) % sizeof pipe.bytes] = from[i];
    pipe.written = at + count;
    return count;
}

uint64_t read(Pipe &pipe, char *to, uint64_t bytes) {
    const uint64_t at = pipe.read, count = std::min(bytes, pipe.written - at);
    for (uint64_t i = 0; i < count; i++) to[i] = pipe.bytes[(at + i) % sizeof pipe.bytes];
    pipe.read = at + count;
    return count;
}

// Whether all of the message was sent or received.
bool move(Meeting &meeting, int me, Message &message) {
    if (message.differs) return false;
    Pipe &pipe = message.is_sent ? meeting.pipes[me][message.peer] : meeting.pipes[message.peer][me];
    if (message.moved == 0) {
        uint64_t length = message.bytes;
        if (message.is_sent) {
            if (sizeof pipe.bytes - (pipe.written - pipe.read) < sizeof length) return false;
            write(pipe, (const char *)&length, sizeof length);
        } else {
            if (pipe.written - pipe.read < sizeof length) return false;
            read(pipe, (char *)&length, sizeof length);
            if (length != message.bytes) {
                fprintf(stderr, "fake libnccl.so.2: rank %d sends %lu bytes to rank %d, which expects %lu: they never arrive\n", message.peer,
                        length, me, message.bytes);
                message.differs = true;
                return false;
            }
        }
        message.moved = sizeof length;
    }
    const uint64_t done = message.moved - sizeof(uint64_t), left = message.bytes - done;
    message.moved += message.is_sent ? write(pipe, message.at + done, left) : read(pipe, message.at + done, left);
    return message.moved == message.bytes + sizeof(uint64_t);
}

// Groups that were launched and are not done, by device, the first in front. NCCL's kernels wait
// for other ranks on multiprocessors that the groups behind them may need.
std::mutex queues_lock;
std::map<void *, std::deque<const Group *>> queues;

// Advances a group; returns whether it is done. Messages of two ranks in one direction follow each
// other.
bool step(Meeting &meeting, int me, Group &group) {
    bool busy[2][MOST_RANKS] = {};
    bool done = true;
    for (Message &message : group.messages) {
        bool &behind = busy[message.is_sent][message.peer];
        if (message.moved == message.bytes + sizeof(uint64_t)) continue;
        if (behind || !move(meeting, me, message)) behind = true, done = false;
    }
    return done;
}

// Puts a group that all its ranks have called for onto its stream.
Result launch(Comm &comm) {
    Ranges ranges;
    for (const Message &message : comm.group.messages) ranges.emplace_back((uint64_t)message.at, message.bytes);
    const auto group = std::make_shared<Group>(std::move(comm.group));
    Meeting *meeting = comm.meeting;
    const int rank = comm.rank;
    const auto given_up = comm.given_up;
    const auto running = comm.running;
    ++*running;
    void *const device = comm.context;
    {
        std::lock_guard<std::mutex> lock(queues_lock);
        queues[device].push_back(group.get());
    }
    const std::function<bool()> go_on = [=] {
        std::lock_guard<std::mutex> lock(queues_lock);
        auto &queue = queues[device];
        if (!*given_up && (queue.front() != group.get() || !step(*meeting, rank, *group))) return false;
        queue.erase(std::find(queue.begin(), queue.end(), group.get()));
        --*running;
        return true;
    };
    auto *enqueue = driver<int(void *, void *, const char *, const std::function<bool()> &, const Ranges &)>("fake_cuda_launch");
    if (enqueue(comm.context, group->stream, "a group of NCCL's", go_on, ranges)) {
        std::lock_guard<std::mutex> lock(queues_lock);
        queues[device].pop_back();
        comm.state = Comm::FAILED;
        return refuse(INVALID_ARGUMENT, "a message is not in memory of the device, or the stream is not its own");
    }
    comm.state = Comm::READY;
    return SUCCESS;
}

// Advances the operations that were begun.
Result go_on(Comm &comm) {
    Meeting &meeting = *comm.meeting;
    switch (comm.state) {
    case Comm::JOINING:
        if (meeting.joined < comm.size) return IN_PROGRESS;
        unlink(comm.path.c_str());
        for (int rank = 0; rank < comm.size; rank++) {
            if (rank != comm.rank && meeting.device[rank] == meeting.device[comm.rank]) {
                comm.state = Comm::FAILED;
                return refuse(INVALID_USAGE, "Duplicate GPU detected : rank " + std::to_string(comm.rank) + " and rank " + std::to_string(rank) +
                                                 " both on CUDA device " + std::to_string(meeting.device[rank] - 1));
            }
        }
        comm.state = Comm::READY;
        return SUCCESS;
    case Comm::CALLING:
        // Ranks connect by their first messages; later messages are launched without waiting for
        // the other rank.
        for (const Message &message : comm.group.messages) {
            meeting.called[comm.rank][message.peer] = 1;
            if (!meeting.called[message.peer][comm.rank]) return IN_PROGRESS;
        }
        return ++comm.asked < 3 ? IN_PROGRESS : launch(comm);
    case Comm::FINALISING:
        if (*comm.running) driver<void(void *)>("fake_cuda_run")(comm.context);
        if (*comm.running) return IN_PROGRESS;
        comm.state = Comm::FINALISED;
        return SUCCESS;
    case Comm::FAILED: return INVALID_USAGE;
    default: return SUCCESS;
    }
}

Comm &known(Comm *comm, const char *function) {
    if (all.comms.count(comm)) return *comm;
    fprintf(stderr, "fake libnccl.so.2: %s: ", function);
    undefined("no communicator, or one that was given back");
}

void give_back(Comm *comm) {
    *comm->given_up = true;
    unlink(comm->path.c_str());
    all.comms.erase(comm);
    // The meeting stays mapped: a stream may still use it.
    delete comm;
}

int message(bool is_sent, void *at, size_t count, int type, int peer, Comm *comm, void *stream) {
    std::lock_guard<std::mutex> lock(all.lock);
    Comm &mine = known(comm, is_sent ? "ncclSend" : "ncclRecv");
    if (mine.state != Comm::READY) return refuse(INVALID_USAGE, "a message while a call is under way or after an error");
    if (depth == 0) undefined("a message outside of a group");
    if (type != BYTES || count == 0 || peer < 0 || peer >= mine.size || peer == mine.rank) {
        return refuse(INVALID_ARGUMENT, "a message of another type, of nothing, or to itself or nobody");
    }
    if (called.empty() || called.back().first != comm) called.push_back({comm, Group{stream, {}}});
    if (called.back().second.stream != stream) undefined("a group on several streams");
    called.back().second.messages.push_back({is_sent, peer, (char *)at, count});
    return SUCCESS;
}

} // namespace

extern "C" {

int ncclGetVersion(int *version) {
    *version = VERSION;
    return SUCCESS;
}

const char *ncclGetErrorString(int result) {
    switch (result) {
    case SUCCESS: return "no error";
    case SYSTEM_ERROR: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case INVALID_ARGUMENT: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case INVALID_USAGE: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    default: return "unknown result code";
    }
}

const char *ncclGetLastError(Comm *) { return last.c_str(); }

int ncclGetUniqueId(Id *id) {
    *id = {};
    strcpy(id->path, "/tmp/fake-nccl-XXXXXX");
    const int file = mkstemp(id->path);
    if (file < 0 || ftruncate(file, sizeof(Meeting))) return refuse(SYSTEM_ERROR, "no file for the ranks to meet in");
    close(file);
    return SUCCESS;
}

int ncclCommInitRankConfig(Comm **comm, int size, Id id, int rank, Config *config) {
    std::lock_guard<std::mutex> lock(all.lock);
    *comm = nullptr;
    if (config->magic != MAGIC || config->size < sizeof(Config) || config->version > (uint32_t)VERSION) return refuse(INVALID_ARGUMENT, "the configuration");
    if (config->blocking != 0) undefined("a communicator that blocks");
    if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size) return refuse(INVALID_ARGUMENT, "the rank, or the number of ranks");
    auto *current = driver<int(void **)>("fake_cuda_current");
    void *context = nullptr;
    const int device = current ? current(&context) : -1;
    if (device < 0) return refuse(SYSTEM_ERROR, "this thread has no device");
    const int file = open(id.path, O_RDWR);
    void *meeting = file < 0 ? MAP_FAILED : mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (meeting == MAP_FAILED) return refuse(SYSTEM_ERROR, "the id is not one, or its ranks have met");
    Comm *made = new Comm;
    made->rank = rank, made->size = size, made->context = context, made->path = id.path, made->meeting = (Meeting *)meeting;
    int sizes = 0;
    const bool agreed = made->meeting->size.compare_exchange_strong(sizes, size) || sizes == size;
    made->meeting->device[rank] = device + 1;
    if (!agreed || made->meeting->taken[rank]++) {
        delete made;
        return refuse(INVALID_ARGUMENT, "a rank twice, or another number of ranks");
    }
    made->meeting->joined++;
    all.comms.insert(made);
    *comm = made;
    return IN_PROGRESS;
}

int ncclCommGetAsyncError(Comm *comm, int *state) {
    std::lock_guard<std::mutex> lock(all.lock);
    *state = go_on(known(comm, "ncclCommGetAsyncError"));
    return SUCCESS;
}

int ncclGroupStart() {
    depth++;
    return SUCCESS;
}

int ncclGroupEnd() {
    std::lock_guard<std::mutex> lock(all.lock);
    if (depth == 0) return refuse(INVALID_USAGE, "no group was started");
    if (--depth) return SUCCESS;
    if (called.size() > 1) undefined("a group of several communicators");
    for (auto &each : called) {
        Comm &comm = known(each.first, "ncclGroupEnd");
        comm.group = std::move(each.second);
        comm.state = Comm::CALLING;
        comm.asked = 0;
    }
    const bool begun = !called.empty();
    called.clear();
    return begun ? IN_PROGRESS : SUCCESS;
}

int ncclSend(const void *at, size_t count, int type, int peer, Comm *comm, void *stream) {
    return message(true, (void *)at, count, type, peer, comm, stream);
}

int ncclRecv(void *at, size_t count, int type, int peer, Comm *comm, void *stream) {
    return message(false, at, count, type, peer, comm, stream);
}

int ncclCommFinalize(Comm *comm) {
    std::lock_guard<std::mutex> lock(all.lock);
    Comm &mine = known(comm, "ncclCommFinalize");
    if (mine.state != Comm::READY) return refuse(INVALID_USAGE, "finalised while a call is under way or after an error");
    mine.state = Comm::FINALISING;
    return IN_PROGRESS;
}

int ncclCommDestroy(Comm *comm) {
    std::lock_guard<std::mutex> lock(all.lock);
    if (known(comm, "ncclCommDestroy").state != Comm::FINALISED) undefined("destroyed before it was finalised");
    give_back(comm);
    return SUCCESS;
}

int ncclCommAbort(Comm *comm) {
    std::lock_guard<std::mutex> lock(all.lock);
    known(comm, "ncclCommAbort");
    give_back(comm);
    return SUCCESS;
}
}
