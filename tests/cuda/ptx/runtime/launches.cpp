#include "cuda/ptx/findings.hpp"
#include "cuda/ptx/machine.hpp"
#include "cuda/ptx/program.hpp"
#include "cuda/ptx/runtime/runtime.hpp"
#include "cuda/ptx/text.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

// The modules and kernels of the program, launches, and what the device says about itself.

using namespace zero::test::ptx;

namespace {

/// The code of one unit of the program for several architectures, as nvcc stores it.
struct FatBinary {
    u8 const* data;
    std::shared_ptr<Module> module; ///< null until a kernel of it is used
};

struct KernelEntry {
    FatBinary* binary;
    std::string name;
    Kernel const* kernel;
    bool is_launched;
};

std::map<void const*, KernelEntry>& kernels() {
    static auto& entries = *new std::map<void const*, KernelEntry>; // filled before main()
    return entries;
}

template <class T>
T read_at(u8 const* memory) {
    T value{};
    std::memcpy(&value, memory, sizeof value);
    return value;
}

int architecture_of(std::string const& ptx) {
    std::size_t const at = ptx.find(".target sm_");
    return at == std::string::npos ? 0 : std::atoi(ptx.c_str() + at + 11);
}

/// Returns the PTX for this architecture, or for the latest if it is 0.
std::string ptx_of(u8 const* data, int wanted) {
    constexpr u32 magic = 0xba55ed50U;
    constexpr u16 kind_of_ptx = 1;
    std::string found;
    if (read_at<u32>(data) != magic) {
        return found;
    }
    u8 const* entry = data + read_at<u16>(data + 6);
    u8 const* const end = entry + read_at<u64>(data + 8);
    while (entry < end) {
        u32 const header = read_at<u32>(entry + 4);
        u64 const bytes = read_at<u64>(entry + 8);
        if (read_at<u16>(entry) == kind_of_ptx) {
            std::string text(reinterpret_cast<char const*>(entry) + header, bytes);
            std::size_t const begin = text.find(".version");
            if (begin == std::string::npos) {
                std::fputs("PTX: a module is compressed; compile it with --no-compress\n", stderr);
                std::exit(1);
            }
            text = text.substr(begin, text.find('\0', begin) - begin);
            if (wanted != 0 ? architecture_of(text) == wanted
                            : architecture_of(text) > architecture_of(found)) {
                found = std::move(text);
            }
        }
        entry += header + bytes;
    }
    return found;
}

/// A text in PTX and the number that `#` stands for in it.
struct FoundText {
    std::size_t at = std::string::npos;
    std::size_t size = 0;
    std::string number;
};

/// Finds the next place of a text in which one `#` may stand for the number of a register.
FoundText find_text(std::string const& ptx, std::string const& text, std::size_t from) {
    std::size_t const mark = std::min(text.find('#'), text.size());
    std::string const rest = mark == text.size() ? "" : text.substr(mark + 1);
    for (std::size_t at = ptx.find(text.substr(0, mark), from); at != std::string::npos;
         at = ptx.find(text.substr(0, mark), at + 1)) {
        std::size_t end = at + mark;
        while (mark != text.size() && end < ptx.size() && ptx[end] >= '0' && ptx[end] <= '9') {
            ++end;
        }
        if (ptx.compare(end, rest.size(), rest) == 0) {
            return {at, end + rest.size() - at, ptx.substr(at + mark, end - at - mark)};
        }
    }
    return {};
}

/// Changes the text of kernels as ZERO_PTX_MUTANT says, so that a test can show that the fault is
/// found: `<kernel>|<text>|<other>` or `<kernel>|<text>|<other>|<n>` replaces a text, or only its
/// occurrence n (from 0), in each kernel whose name contains the first word. A `#` in
/// the other text is the same number.
std::string mutated(std::string ptx) {
    char const* const mutant = std::getenv("ZERO_PTX_MUTANT");
    if (mutant == nullptr) {
        return ptx;
    }
    std::vector<std::string> const parts = split(mutant, '|');
    std::string const entry = ".entry ";
    int changes = 0;
    for (std::size_t begin = ptx.find(entry); begin != std::string::npos;) {
        std::size_t end = ptx.find(entry, begin + 1);
        bool const is_meant = ptx.find(parts.at(0), begin) < ptx.find('\n', begin);
        int occurrence = 0;
        for (FoundText found = find_text(ptx, parts.at(1), begin); is_meant && found.at < end;
             found = find_text(ptx, parts[1], found.at + 1)) {
            if (parts.size() < 4 || occurrence == std::atoi(parts[3].c_str())) {
                std::string other = parts.at(2);
                if (std::size_t const mark = other.find('#'); mark != std::string::npos) {
                    other.replace(mark, 1, found.number);
                }
                ptx.replace(found.at, found.size, other);
                end = ptx.find(entry, begin + 1);
                ++changes;
            }
            ++occurrence;
        }
        begin = end;
    }
    std::fprintf(stderr, "PTX: %d changes\n", changes);
    return ptx;
}

u64 number_in(char const* variable, u64 otherwise) {
    char const* const text = std::getenv(variable);
    return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

/// Ends the program, with success, if ZERO_PTX_SAME_AS names another architecture whose text is the
/// one to be interpreted, except for the line that names the target: another test interprets it.
void end_if_same() {
    auto const other = static_cast<int>(number_in("ZERO_PTX_SAME_AS", 0));
    auto const text = [](FatBinary const& binary, int architecture) {
        std::string ptx = ptx_of(binary.data, architecture);
        std::string const target = ".target sm_" + std::to_string(architecture) + '\n';
        std::size_t const at = ptx.find(target);
        return at == std::string::npos ? std::string() : ptx.erase(at, target.size());
    };
    std::set<FatBinary const*> binaries;
    for (auto const& entry : kernels()) {
        binaries.insert(entry.second.binary);
    }
    int const own = Runtime::instance().architecture;
    bool const is_same =
        other != 0 && std::all_of(binaries.begin(), binaries.end(), [&](FatBinary const* binary) {
            std::string const ptx = text(*binary, own);
            return !ptx.empty() && ptx == text(*binary, other);
        });
    if (is_same) {
        std::printf("PTX: the text for sm_%d is the one for sm_%d\n", own, other);
        std::fflush(nullptr);
        std::_Exit(0);
    }
}

Kernel const* kernel_of(void const* function) {
    auto const found = kernels().find(function);
    if (found == kernels().end()) {
        return nullptr;
    }
    KernelEntry& entry = found->second;
    if (entry.kernel == nullptr) {
        if (entry.binary->module == nullptr) {
            entry.binary->module =
                parse(mutated(ptx_of(entry.binary->data, Runtime::instance().architecture)));
        }
        auto const kernel = entry.binary->module->kernels.find(entry.name);
        if (kernel == entry.binary->module->kernels.end()) {
            report("kernel without PTX for this architecture", entry.name, "");
            return nullptr;
        }
        entry.kernel = &kernel->second;
    }
    return entry.kernel;
}

cudaError_t enqueue_launch(void const* function, dim3 grid, dim3 block, void** arguments,
                           std::size_t shared_bytes, cudaStream_t stream) {
    Lock const lock(Runtime::instance().mutex);
    Kernel const* const kernel = kernel_of(function);
    if (kernel == nullptr) {
        return result(cudaErrorInvalidDeviceFunction);
    }
    kernels()[function].is_launched = true;
    std::vector<u8> values(kernel->parameter_bytes); // copied before the call returns
    for (std::size_t index = 0; index < kernel->parameters.size(); ++index) {
        Range const& range = kernel->parameters[index];
        std::memcpy(values.data() + range.begin, arguments[index], range.bytes);
    }
    return enqueue(stream, [=, values = std::move(values)]() mutable {
        std::vector<void*> places;
        for (Range const& range : kernel->parameters) {
            places.push_back(values.data() + range.begin);
        }
        launch(*kernel, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, places.data(),
               static_cast<u32>(shared_bytes));
    });
}

/// Writes the names of all kernels that were launched to the file that ZERO_PTX_LAUNCHED names, for
/// check_launched.cmake.
void write_launched() {
    char const* const path = std::getenv("ZERO_PTX_LAUNCHED");
    if (path == nullptr) {
        return;
    }
    std::ofstream file(path);
    for (auto const& entry : kernels()) {
        if (entry.second.is_launched) {
            file << entry.second.name << '\n';
        }
    }
}

/// Between <<<...>>> and the launch.
struct Configuration {
    dim3 grid;
    dim3 block;
    std::size_t shared_bytes;
    cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;
thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

/// Reads the settings, and starts a thread that runs commands when no call waits for them.
struct Start {
    Start() {
        Runtime& runtime = Runtime::instance();
        settings.seed = number_in("ZERO_PTX_SEED", 0);
        settings.has_any_nan = number_in("ZERO_PTX_ANY_NAN", 0) != 0;
        runtime.architecture = static_cast<int>(number_in("ZERO_PTX_ARCHITECTURE", 0));
        runtime.random.seed(settings.seed + 77);
        std::atexit([] {
            Lock const lock(Runtime::instance().mutex);
            write_launched();
            Findings::instance().print_summary();
            if (!Findings::instance().all().empty()) {
                std::fflush(nullptr);
                std::_Exit(1);
            }
        });
        std::thread([&runtime] {
            Lock lock(runtime.mutex);
            for (;;) {
                runtime.changed.wait_for(lock, std::chrono::milliseconds(1));
                run_any(lock);
            }
        }).detach();
    }
} const start;

} // namespace

cudaError_t zero::test::ptx::result(cudaError_t code) {
    return code == cudaSuccess ? code : last_error = code;
}

extern "C" {

// nvcc calls these functions.
void** __cudaRegisterFatBinary(void* wrapper) {
    auto const* const data = read_at<u8 const*>(static_cast<u8 const*>(wrapper) + 8);
    return reinterpret_cast<void**>(new FatBinary{data, nullptr});
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** binary, char const* function, char*, char const* name, int,
                            void*, void*, void*, void*, int*) {
    kernels()[function] = {reinterpret_cast<FatBinary*>(binary), name, nullptr, false};
}
void __cudaRegisterVar(void**, char*, char*, char const*, int, std::size_t, int, int) {}
char __cudaInitModule(void**) {
    return 0;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes,
                                     cudaStream_t stream) {
    configurations.push_back({grid, block, shared_bytes, stream});
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes,
                                       void* stream) {
    Configuration const last = configurations.back();
    configurations.pop_back();
    *grid = last.grid;
    *block = last.block;
    *shared_bytes = last.shared_bytes;
    *static_cast<cudaStream_t*>(stream) = last.stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, void const* function) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared_bytes, cudaStream_t stream) {
    return enqueue_launch(kernel, grid, block, arguments, shared_bytes, stream);
}
cudaError_t cudaLaunchKernel(void const* function, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes, cudaStream_t stream) {
    return enqueue_launch(function, grid, block, arguments, shared_bytes, stream);
}
cudaError_t cudaLaunchKernelExC(cudaLaunchConfig_t const* config, void const* function,
                                void** arguments) {
    return enqueue_launch(function, config->gridDim, config->blockDim, arguments,
                          config->dynamicSmemBytes, config->stream);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void const* function) {
    Lock const lock(Runtime::instance().mutex);
    *attributes = {};
    Kernel const* const kernel = kernel_of(function);
    if (kernel == nullptr) {
        return result(cudaErrorInvalidDeviceFunction);
    }
    attributes->maxThreadsPerBlock = static_cast<int>(kernel->most_threads);
    attributes->ptxVersion =
        architecture_of(".target " + kernels()[function].binary->module->target);
    attributes->binaryVersion = attributes->ptxVersion;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
    static bool const differs = (end_if_same(), true); // all kernels are registered by now
    (void)differs;
    *count = Runtime::instance().devices;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
    *device = current_device;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= Runtime::instance().devices) {
        return result(cudaErrorInvalidDevice);
    }
    current_device = device;
    return cudaSuccess;
}
cudaError_t cudaGetLastError() {
    return std::exchange(last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
    return last_error;
}
char const* cudaGetErrorName(cudaError_t code) {
    static thread_local char text[32];
    std::snprintf(text, sizeof text, "error %d", static_cast<int>(code));
    return text;
}
char const* cudaGetErrorString(cudaError_t code) {
    return cudaGetErrorName(code);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    int const architecture = Runtime::instance().architecture;
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = Runtime::instance().multiprocessors; break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = architecture != 0 ? architecture / 10 : 9;
        break;
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrConcurrentManagedAccess: *value = 1; break;
    default: *value = 0;
    }
    return cudaSuccess;
}

} // extern "C"
