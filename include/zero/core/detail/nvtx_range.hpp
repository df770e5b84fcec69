#pragma once

#include "namespace.hpp"

#if defined(ZERO_NVTX)
#if !__has_include(<nvtx3/nvToolsExt.h>)
#error zero: ZERO_NVTX is defined, but nvtx3/nvToolsExt.h was not found; it is part of the CUDA toolkit. Add its folder, or do not define ZERO_NVTX.
#endif
#include <nvtx3/nvToolsExt.h>
#endif

namespace ZERO_NAMESPACE::detail {

/// @brief A range that Nsight Systems shows on the thread that enqueues, and on the device around
/// the commands that were enqueued in it. A no-op unless `ZERO_NVTX` is defined.
class NvtxRange {
public:
#if defined(ZERO_NVTX)
    explicit NvtxRange(char const* name) noexcept { nvtxRangePushA(name); }
    ~NvtxRange() { nvtxRangePop(); }
#else
    explicit NvtxRange(char const*) noexcept {}
    ~NvtxRange() = default;
#endif
    NvtxRange(NvtxRange const&) = delete;
    NvtxRange& operator=(NvtxRange const&) = delete;
};

} // namespace ZERO_NAMESPACE::detail
