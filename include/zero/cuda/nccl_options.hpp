#pragma once

#include "../core/detail/namespace.hpp"
#include "nccl_library.hpp"

#include <chrono>

namespace ZERO_NAMESPACE::cuda {

/// @brief How a communicator over NCCL waits, notices failures and sums. All ranks of a group have
/// to choose the same `native_all_reduce`, which engines of stage 0 compare.
///
/// A time of `std::chrono::milliseconds::max()` is no limit.
struct NcclOptions {
    /// Above 0; how long peers may stay away: in the start, in a call, and for collectives that
    /// were enqueued, from the end of the one before.
    std::chrono::milliseconds time_out = std::chrono::minutes(30);
    /// Not negative; how long a destructor waits for enqueued collectives and for NCCL's end,
    /// counted from its start, before it aborts the communicator. An abort, whoever asks for it, is
    /// waited for at most 5 s: NCCL's own waits without end for CUDA graphs and for peers on the
    /// same machine.
    std::chrono::milliseconds finish_time_out = std::chrono::seconds(30);
    /// Not negative; how often a thread looks for errors and time-outs while the program waits for
    /// the device. 0: no such thread; then nothing but calls on the communicator notices them, and
    /// a program that waits for the device waits for ever.
    std::chrono::milliseconds watch_interval = std::chrono::milliseconds(500);
    /// How NCCL is told to behave in communicators that this library makes.
    NcclMode mode = NcclMode::non_blocking;
    /// Sum with NCCL's own all-reduce. It is faster for small messages, but adds in another order
    /// than its reduce-scatter, so that stage 0 no longer equals stages 1 to 3 bit for bit.
    bool native_all_reduce = false;
};

} // namespace ZERO_NAMESPACE::cuda
