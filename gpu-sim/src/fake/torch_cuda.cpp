// torch's CUDA part without a GPU, for tests: tensors on "cuda" over the fake driver (driver.cpp),
// to be preloaded as libtorch_cuda.so next to the real libtorch_cpu.so.
//
// Memory is the driver's, in the order of the null stream, like that of torch's caching allocator,
// and no other device reads it. An operator copies its tensors to the host in that order, is
// computed there by torch's CPU kernel, and copies its results back. So everything that gsplit asks
// of torch on a GPU goes through the same dispatcher, autograd engine (a thread for each device)
// and device guards; and, as with CUDA, operators over tensors of several devices are refused.
// Errors and rounding that are specific to the CUDA kernels do not show.
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Registry.h>
#include <torch/library.h>

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

namespace c10 {

// Declared as in libc10_cuda.so.
class FreeMemoryCallback {
 public:
  virtual ~FreeMemoryCallback() = default;
  virtual bool Execute() = 0;
};

C10_DECLARE_REGISTRY(FreeCudaMemoryCallbacksRegistry, FreeMemoryCallback);
C10_DEFINE_REGISTRY(FreeCudaMemoryCallbacksRegistry, FreeMemoryCallback)

}  // namespace c10

using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using c10::Stream;
using c10::kCUDA;

namespace {

constexpr int OUT_OF_MEMORY = 2;

// --- the driver ---

template <class Function>
Function driver(const char* name) {
  static void* library = dlopen("libcuda.so", RTLD_NOW);
  TORCH_CHECK(library, "no fake driver: ", dlerror());
  auto* function = reinterpret_cast<Function>(dlsym(library, name));
  TORCH_CHECK(function, "the driver lacks ", name);
  return function;
}

void check(int code, const char* call) { TORCH_CHECK(code == 0, "CUDA error: ", call, " returns ", code); }

#define CALL(name, ...) check(driver<int (*)(...)>(#name)(__VA_ARGS__), #name)

thread_local DeviceIndex current = 0;

DeviceIndex devices() noexcept {
  static const int count = [] {
    int count = 0;
    const bool there = driver<int (*)(unsigned)>("cuInit")(0) == 0;
    return there && driver<int (*)(int*)>("cuDeviceGetCount")(&count) == 0 ? count : 0;
  }();
  return static_cast<DeviceIndex>(count);
}

// Makes the primary context of `device` the thread's; torch keeps it until the process ends.
void enter(DeviceIndex device) {
  static std::mutex lock;
  static std::vector<void*> contexts(devices(), nullptr);
  TORCH_CHECK(device >= 0 && device < devices(), "CUDA error: invalid device ordinal");
  void* context = nullptr;
  {
    std::lock_guard<std::mutex> held(lock);
    if (!contexts[device]) {
      CALL(cuDevicePrimaryCtxRetain, &contexts[device], static_cast<int>(device));
      static const int releases = std::atexit([] {
        for (size_t at = 0; at < contexts.size(); at++) {
          if (contexts[at]) driver<int (*)(int)>("cuDevicePrimaryCtxRelease_v2")(static_cast<int>(at));
        }
      });
      (void)releases;
    }
    context = contexts[device];
  }
  CALL(cuCtxSetCurrent, context);
}

// --- memory ---

struct Block {
  uint64_t address;
  DeviceIndex device;
  size_t bytes;
};

std::atomic<int64_t> held[64];

void give_back(void* block) {
  std::unique_ptr<Block> owned(static_cast<Block*>(block));
  enter(owned->device);
  held[owned->device] -= owned->bytes;
  driver<int (*)(uint64_t, void*)>("cuMemFreeAsync")(owned->address, nullptr);
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const Device device(kCUDA, current);
    if (bytes == 0) return {nullptr, device};
    enter(current);
    // Called whenever the driver is asked for more memory, as torch does.
    auto* callbacks = c10::FreeCudaMemoryCallbacksRegistry();
    if (!driver<int (*)(size_t)>("fake_cuda_has_room")(bytes)) {
      for (const std::string& name : callbacks->Keys()) callbacks->Create(name)->Execute();
    }
    uint64_t address = 0;
    const int code = driver<int (*)(uint64_t*, size_t)>("fake_cuda_allocate")(&address, bytes);
    TORCH_CHECK_WITH(
        OutOfMemoryError, code != OUT_OF_MEMORY, "CUDA out of memory. Tried to allocate ", bytes >> 20, ".00 MiB. GPU ",
        static_cast<int>(current), " has less.");
    check(code, "fake_cuda_allocate");
    held[current] += bytes;
    return {reinterpret_cast<void*>(address), new Block{address, current, bytes}, give_back, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    CALL(cuMemcpyDtoDAsync_v2, reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), bytes, nullptr);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override { driver<void (*)()>("fake_cuda_empty")(); }
  void recordStream(const c10::DataPtr&, Stream) override { TORCH_CHECK(false, "the fake has no record_stream"); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.reserved_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].current = held[device];
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex) override {}
  void resetPeakStats(DeviceIndex) override {}
};

Allocator allocator;

// --- devices and streams: only the null stream exists ---

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kCUDA; }
  Device getDevice() const override { return {kCUDA, current}; }
  void setDevice(Device device) const override {
    enter(device.index());
    current = device.index();
  }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    if (device.index() != before.index()) setDevice(device);
    return before;
  }
  void uncheckedSetDevice(Device device) const noexcept override { current = device.index(); }
  Stream getStream(Device device) const override { return Stream(Stream::DEFAULT, device); }
  Stream getDefaultStream(Device device) const override { return getStream(device); }
  Stream exchangeStream(Stream stream) const override { return getStream(stream.device()); }
  DeviceIndex deviceCount() const noexcept override { return devices(); }
  // Between null streams of several devices.
  void record(void**, const Stream& stream, const DeviceIndex, const c10::EventFlag) const override {
    enter(stream.device_index());
    CALL(cuStreamSynchronize, nullptr);
  }
  void block(void*, const Stream&) const override {}
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace

namespace at {

struct FakeHooks final : CUDAHooksInterface {
  explicit FakeHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return devices() > 0; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return devices(); }
  DeviceIndex deviceCount() const override { return devices(); }
  DeviceIndex current_device() const override { return current; }
  c10::Allocator* getCUDADeviceAllocator() const override { return &allocator; }
  void deviceSynchronize(DeviceIndex device) const override {
    enter(device);
    CALL(cuCtxSynchronize);
  }
};

C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", FakeHooks)

}  // namespace at

namespace {

const bool REGISTERED = [] {
  c10::SetAllocator(kCUDA, &allocator, 1);
  return true;
}();

// --- copies ---

struct On {
  DeviceIndex before = current;
  explicit On(const Tensor& tensor) {
    enter(tensor.get_device());
    current = tensor.get_device();
  }
  ~On() { current = before; }
};

uint64_t address(const Tensor& tensor) { return reinterpret_cast<uint64_t>(tensor.data_ptr()); }

// Number of elements from the first to the last of `tensor`, gaps included.
int64_t extent(const Tensor& tensor) {
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); d++) last += (tensor.size(d) - 1) * tensor.stride(d);
  return tensor.numel() ? last + 1 : 0;
}

Tensor room(const Tensor& like) {
  return at::empty({extent(like)}, at::TensorOptions().dtype(like.dtype())).as_strided(like.sizes(), like.strides());
}

Tensor on_host(const Tensor& tensor) {
  if (!tensor.is_cuda()) return tensor;
  const On on(tensor);
  Tensor host = room(tensor);
  const size_t bytes = host.storage().nbytes();
  if (bytes) CALL(cuMemcpyDtoHAsync_v2, host.data_ptr(), address(tensor), bytes, nullptr);
  return host;
}

void store(const Tensor& tensor, const Tensor& values) {
  const bool has_gaps = extent(tensor) != tensor.numel();
  Tensor host = has_gaps ? on_host(tensor) : room(tensor);
  host.copy_(values);
  const On on(tensor);
  CALL(cuMemcpyHtoDAsync_v2, address(tensor), host.data_ptr(), host.storage().nbytes(), nullptr);
}

// Exists while the host runs in place of a kernel. Its copies and waits are not ones that CUDA
// would make.
struct Kernel {
  static thread_local int running;
  Kernel() { if (running++ == 0) driver<void (*)(bool)>("fake_cuda_compute")(true); }
  ~Kernel() { if (--running == 0) driver<void (*)(bool)>("fake_cuda_compute")(false); }
};
thread_local int Kernel::running = 0;

Tensor& copy(Tensor& self, const Tensor& source, bool) {
  if (self.numel() == 0) return self;
  if (self.is_cuda() != source.is_cuda() && !Kernel::running) driver<void (*)()>("fake_cuda_copied")();
  std::optional<Kernel> kernel;
  if (self.is_cuda() == source.is_cuda()) kernel.emplace();
  const Tensor values = on_host(source);
  if (self.is_cuda()) store(self, values.expand(self.sizes()));
  else self.copy_(values);
  return self;
}

Tensor copy_from(const Tensor& self, const Tensor& to, bool non_blocking) {
  Tensor out = to;
  return copy(out, self, non_blocking);
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& to) {
  to.resize_(self.sizes());
  return copy_from(self, to, false);
}

// --- tensors ---

struct At {
  c10::OptionalDeviceGuard guard;
  explicit At(std::optional<Device> device) { if (device) guard.reset_device(*device); }
};

constexpr c10::DispatchKeySet CUDA_ALONE(c10::DispatchKey::CUDA);

Tensor empty(
    at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<Device> device,
    std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const At at(device);
  return at::detail::empty_generic(size, &allocator, CUDA_ALONE, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(
    at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<Device> device, std::optional<bool>) {
  const At at(device);
  return at::detail::empty_strided_generic(size, stride, &allocator, CUDA_ALONE, c10::dtype_or_default(dtype));
}

const Tensor& resize(const Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  const auto& storage = impl->unsafe_storage();
  const size_t bytes = (impl->storage_offset() + impl->numel()) * impl->itemsize();
  if (storage.nbytes() < bytes) {
    TORCH_CHECK(storage.nbytes() == 0, "the fake resizes only empty storage");
    const On on(self);
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(allocator.allocate(bytes));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
  return self;
}

// Exists in CUDA only: products of 2-byte factors, in f32.
Tensor mm_dtype(const Tensor& a, const Tensor& b, at::ScalarType dtype) {
  TORCH_CHECK(
      a.scalar_type() == b.scalar_type() && (a.scalar_type() == at::kHalf || a.scalar_type() == at::kBFloat16) &&
          dtype == at::kFloat,
      "mm.dtype: from ", a.scalar_type(), " and ", b.scalar_type(), " to ", dtype);
  TORCH_CHECK(a.is_cuda() && a.device() == b.device(), "mm.dtype: tensors of several devices");
  const Kernel kernel;
  const Tensor product = on_host(a).to(dtype).mm(on_host(b).to(dtype));
  return product.to(a.device());
}

// --- everything else ---

// As in CUDA's kernels: all tensors are on one device, except scalars.
void check_devices(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::optional<Device> found;
  const auto look = [&](const Tensor& tensor) {
    if (!tensor.defined() || (tensor.dim() == 0 && !tensor.is_cuda())) return;
    TORCH_CHECK(
        !found || *found == tensor.device(), "Expected all tensors to be on the same device, but ", op.schema().name(),
        " has one on ", *found, " and one on ", tensor.device());
    found = tensor.device();
  };
  for (const auto& argument : torch::jit::last(stack, op.schema().arguments().size())) {
    if (argument.isTensor()) look(argument.toTensor());
    if (argument.isTensorList()) for (const Tensor& tensor : argument.toTensorList()) look(tensor);
    if (argument.isOptionalTensorList()) {
      for (const std::optional<Tensor>& tensor : argument.toOptionalTensorList()) if (tensor) look(*tensor);
    }
  }
}

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check_devices(op, *stack);
  // Reading a scalar copies it.
  std::optional<Kernel> kernel;
  if (op.schema().name() != "aten::_local_scalar_dense") kernel.emplace();
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("resize_", &resize);
  m.impl("copy_", &copy);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", static_cast<Tensor (*)(const Tensor&, at::IntArrayRef)>(&at::native::view));
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("mm.dtype", &mm_dtype);
}
