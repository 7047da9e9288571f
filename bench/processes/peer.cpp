// How fast torch's own all-to-all is: `peer RANK SIZE PORT ROUNDS BYTES`, beside trainer/examples/alltoall.rs, whose lines it prints.

#define USE_C10D_GLOO 1

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

// Seconds of one of `times` all-to-alls of messages of so many `bytes`.
static double seconds(c10d::ProcessGroupGloo& group, int64_t bytes, int times) {
  auto send = torch::full({group.getSize() * bytes}, group.getRank(), torch::kByte), recv = torch::full_like(send, 9);
  std::vector<int64_t> even;
  group.alltoall_base(recv, send, even, even)->wait();
  const auto started = std::chrono::steady_clock::now();
  for (int i = 0; i < times; i++) group.alltoall_base(recv, send, even, even)->wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count() / times;
}

static void print(const char* name, const std::vector<double>& values, const char* after) {
  std::printf("\"%s\": [", name);
  for (size_t i = 0; i < values.size(); i++) std::printf("%s%g", i ? ", " : "", values[i]);
  std::printf("]%s", after);
}

int main(int, char** words) {
  const int rank = std::atoi(words[1]), size = std::atoi(words[2]), rounds = std::atoi(words[4]);
  const int64_t bytes = std::atoll(words[5]);
  c10d::TCPStoreOptions where;
  where.port = std::atoi(words[3]);
  where.isServer = rank == 0;
  where.numWorkers = size;
  auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", where);
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
  std::vector<double> speeds, micros;
  for (int round = 0; round <= rounds; round++) {
    const double length = seconds(*group, bytes, 10), brief = seconds(*group, 8, 200);
    if (round == 0) continue;
    speeds.push_back(size * bytes / length / 1e9);
    micros.push_back(brief * 1e6);
  }
  group->barrier()->wait();
  if (rank > 0) return 0;
  std::printf("{");
  print("long_gb_s", speeds, ", ");
  print("short_us", micros, "}\n");
}
