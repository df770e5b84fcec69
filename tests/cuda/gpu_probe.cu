// Asks a machine for what the device tests need, before anything else uses time on it: a device,
// memory pools, graph capture, and NCCL, which may be missing. The exit status is 0 if the first
// three are there.

#include <cuda_runtime.h>

#include <cstdio>
#include <dlfcn.h>

namespace {

bool has_failed = false;

void require(cudaError_t code, char const* what) {
    if (code != cudaSuccess) {
        std::printf("%s: %s, %s\n", what, cudaGetErrorName(code), cudaGetErrorString(code));
        has_failed = true;
    }
}

__global__ void write_answer(int* answer) {
    *answer = 42;
}

void try_capture(cudaStream_t stream, int* memory) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin of a capture");
    write_answer<<<1, 1, 0, stream>>>(memory);
    require(cudaStreamEndCapture(stream, &graph), "end of a capture");
    if (has_failed) {
        return;
    }
    require(cudaGraphInstantiate(&executable, graph, 0), "instantiation of a graph");
    if (!has_failed) {
        require(cudaGraphLaunch(executable, stream), "launch of a graph");
    }
    int answer = 0;
    require(cudaMemcpyAsync(&answer, memory, sizeof(int), cudaMemcpyDeviceToHost, stream), "copy");
    require(cudaStreamSynchronize(stream), "wait for a stream");
    if (!has_failed && answer != 42) {
        std::printf("a captured kernel wrote %d instead of 42\n", answer);
        has_failed = true;
    }
}

/// Returns the version of the NCCL library that programs find, or 0 if there is none.
int nccl_version() {
    int version = 0;
    if (void* const library = dlopen("libnccl.so.2", RTLD_NOW); library != nullptr) {
        if (void* const function = dlsym(library, "ncclGetVersion"); function != nullptr) {
            reinterpret_cast<int (*)(int*)>(function)(&version);
        }
    }
    return version;
}

} // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::puts("skipped: no CUDA device");
        return 0;
    }
    cudaDeviceProp properties{};
    int has_pools = 0;
    int* memory = nullptr;
    cudaStream_t stream = nullptr;
    require(cudaGetDeviceProperties(&properties, 0), "properties of a device");
    require(cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, 0), "memory pools");
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    if (!has_failed && has_pools == 0) {
        std::puts("the device has no memory pools");
        has_failed = true;
    }
    if (!has_failed) {
        require(cudaMallocAsync(reinterpret_cast<void**>(&memory), sizeof(int), stream),
                "cudaMallocAsync");
    }
    if (!has_failed) {
        try_capture(stream, memory);
        require(cudaFreeAsync(memory, stream), "cudaFreeAsync");
        require(cudaStreamSynchronize(stream), "wait for a stream");
    }
    std::printf("probe: %s, sm_%d%d, %zu MiB, NCCL %d\n", properties.name, properties.major,
                properties.minor, properties.totalGlobalMem >> 20U, nccl_version());
    return has_failed ? 1 : 0;
}
