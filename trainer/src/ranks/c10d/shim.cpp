// The parts of torch's c10d that raw.rs uses: a store that processes meet at, groups of them that
// Gloo connects, and messages. Only raw.rs calls them; it documents the contract. No exception
// leaves: functions return 0, or 1 with a message in `error`. torch's archives hold c10d's headers
// but not Gloo's: `stub/` declares the names of Gloo that c10d's mention.

#define USE_C10D_GLOO 1

#include "guarded.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/version.h>

#include <ATen/ops/from_blob.h>
#include <c10/util/Logging.h>

#include <chrono>
#include <cstdlib>

static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 11, "stub/ has what torch 2.11 names of Gloo: compare with another's headers");

C10_DECLARE_int(caffe2_log_level);

namespace {

using Millis = std::chrono::milliseconds;
using Store = c10::intrusive_ptr<c10d::TCPStore>;
using Group = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
using Work = c10::intrusive_ptr<c10d::Work>;
using Bytes = std::vector<uint8_t>;

std::vector<at::Tensor> tensor_of(void* data, size_t bytes) {
  return {at::from_blob(data, {static_cast<int64_t>(bytes)}, at::kByte)};
}

}  // namespace

extern "C" {

// Listens at the bound socket `listener`, unless that is -1. The store then owns it.
int gsplit_c10d_store(const char* host, uint16_t port, int listener, int64_t timeout, Store** store, char* error) {
  return guarded(error, [&] {
    // Errors are reported once, by the caller.
    if (!std::getenv("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
    c10d::TCPStoreOptions options;
    options.port = port;
    options.isServer = listener >= 0;
    if (options.isServer) options.masterListenFd = listener;
    options.waitWorkers = false;
    options.timeout = Millis(timeout);
    *store = new Store(c10::make_intrusive<c10d::TCPStore>(host, options));
  });
}

void gsplit_c10d_free_store(Store* store) { delete store; }

// Adds `amount` to the number under `key` and stores the sum.
int gsplit_c10d_add(const Store* store, const char* key, int64_t amount, int64_t* sum, char* error) {
  return guarded(error, [&] { *sum = (*store)->add(key, amount); });
}

// Sets `key` to the value unless it has one; copies the first `bytes` of its value then to `value`,
// which has `room`.
int gsplit_c10d_offer(const Store* store, const char* key, uint8_t* value, size_t* bytes, size_t room, char* error) {
  return guarded(error, [&] {
    const auto found = (*store)->compareSet(key, Bytes(), Bytes(value, value + *bytes));
    *bytes = std::min(found.size(), room);
    std::copy_n(found.begin(), *bytes, value);
  });
}

// Uses the address `host`, else the interface `interface`, else torch's choice.
int gsplit_c10d_group(
    const Store* store, const char* name, int rank, int size, int64_t timeout, const char* host, const char* interface, Group** group,
    char* error) {
  return guarded(error, [&] {
    using c10d::ProcessGroupGloo;
    auto options = ProcessGroupGloo::Options::create(Millis(timeout));
    options->devices.push_back(
        host        ? ProcessGroupGloo::createDeviceForHostname(host)
        : interface ? ProcessGroupGloo::createDeviceForInterface(interface)
                    : ProcessGroupGloo::createDefaultDevice());
    auto within = c10::make_intrusive<c10d::PrefixStore>(name, *store);
    *group = new Group(c10::make_intrusive<ProcessGroupGloo>(within, rank, size, options));
  });
}

void gsplit_c10d_free_group(Group* group) { delete group; }

// The caller must not change the memory until the work is freed.
int gsplit_c10d_send(const Group* group, int to, int tag, const uint8_t* data, size_t bytes, Work** work, char* error) {
  return guarded(error, [&] {
    auto message = tensor_of(const_cast<uint8_t*>(data), bytes);
    *work = new Work((*group)->send(message, to, tag));
  });
}

// The work owns the memory until it is freed.
int gsplit_c10d_receive(const Group* group, int from, int tag, uint8_t* data, size_t bytes, Work** work, char* error) {
  return guarded(error, [&] {
    auto message = tensor_of(data, bytes);
    *work = new Work((*group)->recv(message, from, tag));
  });
}

int gsplit_c10d_wait(const Work* work, int64_t timeout, char* error) {
  return guarded(error, [&] { TORCH_CHECK((*work)->wait(Millis(timeout)), "given up"); });
}

// Ends waits for it, on any thread.
int gsplit_c10d_abort(const Work* work, char* error) {
  return guarded(error, [&] { (*work)->abort(); });
}

// After this returns, Gloo neither reads nor writes its memory.
void gsplit_c10d_free_work(Work* work) { delete work; }

}  // extern "C"
