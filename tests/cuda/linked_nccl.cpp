// The communicator over the real NCCL, as far as it goes without a device: links, compares versions, makes an id, and fails to start with typed errors.
// A program of its own: it says "skipped" where there is a device, since starting would then work.

#include "zero/cuda/nccl.hpp"
#include "zero/cuda/nccl_memory_resource.hpp"

#include "zero/host/host_backend.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

using zero::cuda::NcclOptions;

/// Everything but kernels: the queue of this backend is a stream.
struct StreamBackend {
    using Queue = cudaStream_t;
    static void rethrow_failure(Queue) {}
    static void copy_bytes(Queue stream, void* out, void const* in, std::size_t bytes) { static_cast<void>(cudaMemcpyAsync(out, in, bytes, cudaMemcpyDefault, stream)); }
};

using Communicator = zero::cuda::NcclCommunicatorOn<StreamBackend>;
static_assert(zero::Communicator<Communicator>);

int failures = 0;

void expect(bool holds, std::string const& what) {
    std::printf("%s: %s\n", holds ? "ok" : "FAILED", what.c_str());
    failures += holds ? 0 : 1;
}

template <class E, class Body>
void expect_error(char const* part, Body const& body) {
    std::string text = "nothing was thrown";
    try {
        body();
    } catch (E const& error) {
        text = error.what();
    } catch (std::exception const& error) {
        text = std::string("another type: ") + error.what();
    }
    expect(text.find(part) != std::string::npos, text);
}

} // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices != 0) {
        std::printf("skipped: there is a CUDA device\n");
        return 77;
    }
    NcclOptions options;
    options.time_out = std::chrono::seconds(20);

    zero::cuda::detail::require_matching_version(*zero::cuda::linked_nccl().nccl);
    ncclUniqueId const id = Communicator::make_unique_id();
    ncclUniqueId const empty{};
    expect(std::memcmp(&id, &empty, sizeof(id)) != 0, "NCCL makes a unique id");
    expect_error<zero::cuda::NcclError>("NCCL code 1", [&] { (void)Communicator::from_unique_id(id, 0, 1, options); });
    expect_error<zero::InvalidArgument>("rank 2 of a group of 2", [&] { (void)Communicator::from_unique_id(id, 2, 2, options); });
    expect_error<zero::CommunicatorError>("cudaGetDeviceCount failed", [&] { (void)Communicator::make_group(std::vector<int>{0, 1}, options); });
    expect_error<zero::cuda::LauncherError>("WORLD_SIZE is missing", [&] { (void)Communicator::from_environment(options); });
    return failures == 0 ? 0 : 1;
}
