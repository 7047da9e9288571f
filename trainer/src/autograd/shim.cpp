// The parts of torch's C++ interface that tch lacks: a graph node whose backward is a Rust
// function, a backward pass from a given gradient, removing a leaf's gradient, tensors on memory
// that Rust owns, and a callback of torch's GPU allocator. Called only by raw.rs, which documents
// the contract. No exception leaves this file: each function returns 0, or 1 with a message in
// `error`.

#include "guarded.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <ATen/Context.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Registry.h>

#include <dlfcn.h>
#include <sys/mman.h>

#include <memory>
#include <mutex>

using at::Tensor;
using torch::autograd::variable_list;

namespace c10 {

// Copied from c10/cuda/CUDACachingAllocator.h, which cannot be included without CUDA's own headers.
class FreeMemoryCallback {
 public:
  virtual ~FreeMemoryCallback() = default;
  virtual bool Execute() = 0;
};

}  // namespace c10

namespace {

// Makes room on the GPU of the given number.
using MakeRoom = void (*)(int);

// Called by torch's allocator when its cache has no room for a tensor, on the thread that requests
// the tensor.
struct RoomMaker : c10::FreeMemoryCallback {
  MakeRoom make_room;
  explicit RoomMaker(MakeRoom make_room) : make_room(make_room) {}
  bool Execute() override {
    make_room(c10::impl::VirtualGuardImpl(at::kCUDA).getDevice().index());
    // torch's own cache has not changed, so it need not search it again.
    return false;
  }
};

using Drop = void (*)(void*);
// Takes ownership of `gradient` and of the tensors in `saved`; fills `gradients` with owned tensors
// or null.
using Backward = int (*)(
    void* state, Tensor* gradient, Tensor** saved, size_t num_saved, const bool* needed, Tensor** gradients,
    size_t num_inputs, char* error);

// A Rust object, dropped exactly once.
struct Owned {
  void* pointer;
  Drop drop;
  ~Owned() { drop(pointer); }
};

// Context of a storage on memory that Rust owns.
struct Memory {
  Owned owner;
  // Number of bytes from the start that belong to tensors.
  size_t used;
};

std::vector<Tensor> list(Tensor* const* tensors, size_t count) {
  std::vector<Tensor> made;
  for (size_t i = 0; i < count; i++) made.push_back(*tensors[i]);
  return made;
}

void free_memory(void* memory) { delete static_cast<Memory*>(memory); }

struct RustNode : torch::autograd::Node {
  std::unique_ptr<Owned> state;
  Backward backward = nullptr;
  std::vector<torch::autograd::SavedVariable> saved;

  std::string name() const override { return "gsplit::RustNode"; }

  variable_list apply(variable_list&& outputs) override {
    std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(state != nullptr, torch::autograd::ERR_BACKWARD_TWICE);
    TORCH_CHECK(!at::GradMode::is_enabled(), "a Rust operator has no second derivative: do not create a graph in backward");
    const size_t inputs = num_outputs();  // of this node: the operator's inputs
    variable_list result(inputs);
    if (!outputs.at(0).defined()) return result;
    std::vector<char> needed(inputs);
    for (size_t i = 0; i < inputs; i++) needed[i] = task_should_compute_output(i);
    std::vector<Tensor> unpacked;
    for (auto& variable : saved) unpacked.push_back(variable.unpack(shared_from_this()));
    // Nothing below throws until every tensor has an owner again.
    std::vector<Tensor*> given(unpacked.size()), gradients(inputs, nullptr);
    for (size_t i = 0; i < unpacked.size(); i++) given[i] = new Tensor(std::move(unpacked[i]));
    char error[ERROR_BYTES] = "";
    const int failed = backward(
        state->pointer, new Tensor(std::move(outputs[0])), given.data(), given.size(),
        reinterpret_cast<const bool*>(needed.data()), gradients.data(), inputs, error);
    for (size_t i = 0; i < inputs; i++) {
      std::unique_ptr<Tensor> gradient(gradients[i]);
      if (gradient) result[i] = std::move(*gradient);
    }
    TORCH_CHECK(!failed, error);
    return result;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    state.reset();
    saved.clear();
  }
};

}  // namespace

extern "C" {

// Takes ownership of `state`, even on failure.
int gsplit_attach(
    Tensor* const* inputs, size_t num_inputs, Tensor* const* saved, size_t num_saved, Tensor* output, void* state,
    Backward backward, Drop drop, char* error) {
  return guarded(error, [&] {
    auto owned = std::unique_ptr<Owned>(new Owned{state, drop});
    TORCH_CHECK(!output->requires_grad(), "an operator's output must be a new tensor without history");
    const variable_list tensors = list(inputs, num_inputs);
    if (!torch::autograd::compute_requires_grad(tensors)) return;
    auto node = std::shared_ptr<RustNode>(new RustNode(), torch::autograd::deleteNode);
    node->state = std::move(owned);
    node->backward = backward;
    node->set_next_edges(torch::autograd::collect_next_edges(tensors));
    torch::autograd::set_history(*output, node);
    for (size_t i = 0; i < num_saved; i++) {
      const bool is_output = saved[i]->unsafeGetTensorImpl() == output->unsafeGetTensorImpl();
      node->saved.emplace_back(*saved[i], is_output);
    }
  });
}

// Removes the gradient of a leaf, like `zero_grad(set_to_none=True)`.
int gsplit_forget_gradient(const Tensor* leaf, char* error) {
  return guarded(error, [&] { leaf->mutable_grad() = Tensor(); });
}

int gsplit_backward(const Tensor* output, const Tensor* gradient, char* error) {
  return guarded(error, [&] { torch::autograd::backward({*output}, {*gradient}); });
}

// One update of `count` parameters by Adam or, if `decoupled`, AdamW. `step` counts the updates,
// including this one.
int gsplit_adam(
    bool decoupled, size_t count, Tensor* const* parameters, Tensor* const* gradients, Tensor* const* first,
    Tensor* const* second, const Tensor* step, double rate, double beta1, double beta2, double decay, double epsilon,
    char* error) {
  return guarded(error, [&] {
    at::NoGradGuard no_grad;
    const auto w = list(parameters, count), g = list(gradients, count), m = list(first, count), v = list(second, count);
    const std::vector<Tensor> steps(count, *step);
    if (decoupled) at::_fused_adamw_(w, g, m, v, {}, steps, rate, beta1, beta2, decay, epsilon, /*amsgrad=*/false, /*maximize=*/false);
    else at::_fused_adam_(w, g, m, v, {}, steps, rate, beta1, beta2, decay, epsilon, /*amsgrad=*/false, /*maximize=*/false);
  });
}

// One update of `count` parameters by SGD, with `count_momenta` momenta: `count` or 0.
int gsplit_sgd(
    size_t count, Tensor* const* parameters, Tensor* const* gradients, Tensor* const* momenta, size_t count_momenta,
    double rate, double momentum, double decay, bool nesterov, char* error) {
  return guarded(error, [&] {
    at::NoGradGuard no_grad;
    at::_fused_sgd_(
        list(parameters, count), list(gradients, count), list(momenta, count_momenta), decay, momentum, rate,
        /*dampening=*/0, nesterov, /*maximize=*/false, /*is_first_step=*/false);
  });
}

// Takes ownership of `owner`, even on failure: it is dropped with the tensor's storage, which has
// `room` values of the type of `like`, on its device.
int gsplit_adopt(
    void* data, int64_t room, const Tensor* like, const int64_t* shape, size_t dims, void* owner, Drop drop, Tensor** tensor,
    char* error) {
  return guarded(error, [&] {
    auto* memory = new Memory{{owner, drop}, 0};
    const int64_t sizes[] = {room};
    Tensor made = at::for_blob(data, sizes)
                      .context(memory, free_memory)
                      .target_device(like->device())
                      .options(like->options())
                      .make_tensor();
    made.unsafeGetTensorImpl()->set_sizes_contiguous(at::IntArrayRef(shape, dims));
    memory->used = made.nbytes();
    *tensor = new Tensor(std::move(made));
  });
}

// Extends `matrix` to `rows` rows on the same memory. Leaves `extended` null if `matrix` is not the
// whole of the last tensor on adopted memory, or if there is no room.
int gsplit_extend(const Tensor* matrix, int64_t rows, Tensor** extended, char* error) {
  return guarded(error, [&] {
    const at::Storage& storage = matrix->storage();
    if (storage.data_ptr().get_deleter() != &free_memory || matrix->dim() != 2 || !matrix->is_contiguous()) return;
    auto* memory = static_cast<Memory*>(storage.data_ptr().get_context());
    const size_t bytes = rows * matrix->size(1) * matrix->itemsize();
    const bool is_all = matrix->storage_offset() == 0 && matrix->nbytes() == memory->used;
    if (!is_all || bytes < memory->used || bytes > storage.nbytes()) return;
    at::NoGradGuard no_grad;
    Tensor made = at::empty({0}, matrix->options());
    made.set_(storage, 0, {rows, matrix->size(1)});
    memory->used = bytes;
    *extended = new Tensor(std::move(made));
  });
}

// Returns the memory that torch caches to the GPUs.
int gsplit_give_back_memory(char* error) {
  return guarded(error, [&] {
    auto* allocator = c10::getDeviceAllocator(at::kCUDA);
    if (allocator->initialized()) allocator->emptyCache();
  });
}

// Bytes of a GPU's memory that torch's allocator holds, in use or cached.
int gsplit_bytes_held(int ordinal, uint64_t* bytes, char* error) {
  return guarded(error, [&] {
    constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    *bytes = c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(ordinal).reserved_bytes[all].current;
  });
}

// Lets torch's GPU allocator call `make_room`. Found at run time, like all of torch's CUDA part.
int gsplit_before_torch_allocates(MakeRoom make_room, char* error) {
  return guarded(error, [&] {
    using Registry = c10::Registry<std::string, std::unique_ptr<c10::FreeMemoryCallback>>;
    void* library = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    void* found = dlsym(library ? library : RTLD_DEFAULT, "_ZN3c1031FreeCudaMemoryCallbacksRegistryB5cxx11Ev");
    TORCH_CHECK(found, "torch's CUDA part has no FreeCudaMemoryCallbacksRegistry: it is of another version than libtorch");
    static std::once_flag once;
    std::call_once(once, [&] {
      reinterpret_cast<Registry* (*)()>(found)()->Register("gsplit", [=] { return std::make_unique<RoomMaker>(make_room); });
    });
  });
}

// Lets products of f32 factors on GPUs round them to TF32.
int gsplit_round_to_tf32(char* error) {
  return guarded(error, [&] { at::globalContext().setFloat32MatmulPrecision("high"); });
}

// Whether products may round to TF32.
bool gsplit_rounds_to_tf32() { return at::globalContext().float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST; }

// Asks for huge pages; a kernel without them gives ordinary ones.
void gsplit_prefer_huge_pages(void* start, size_t bytes) { madvise(start, bytes, MADV_HUGEPAGE); }

}  // extern "C"
