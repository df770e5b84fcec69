#pragma once

#include "../core/buffer.hpp"
#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "detail/kernels/chunk.hpp"
#include "detail/runtime/check.hpp"
#include "detail/runtime/event_pool.hpp"
#include "table_range.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::cuda {

/// @brief Owns a table of slices in device memory that kernels walk. An engine makes its tables
/// when it is constructed, so a step uploads nothing.
template <class Slice>
class SliceTable {
public:
    using Range = TableRange<Slice>; ///< the argument of kernels: consecutive slices

    SliceTable() = default;

    /// @brief Uploads the slices to the current device and waits for the copy.
    /// @throws CudaError; any exception of `memory`
    SliceTable(cudaStream_t stream, MemoryResource& memory, zero::detail::List<Slice> slices)
        : _slices(std::move(slices)), _first_chunk{0} {
        std::vector<detail::Chunk> chunks;
        for (Slice const& slice : _slices) {
            std::size_t const count =
                (elements_of(slice) + detail::chunk_elements - 1) / detail::chunk_elements;
            for (std::size_t index = 0; index < count; ++index) {
                chunks.push_back({static_cast<std::uint32_t>(_first_chunk.size() - 1),
                                  static_cast<std::uint32_t>(index)});
            }
            _first_chunk.push_back(chunks.size());
        }
        if (chunks.empty()) {
            return;
        }
        int const device = detail::current_device();
        detail::check(
            cudaDeviceGetAttribute(&_multiprocessors, cudaDevAttrMultiProcessorCount, device),
            "cudaDeviceGetAttribute");
        _device_slices = Buffer<Slice>(memory, _slices.size(), BufferKind::control);
        _device_chunks = Buffer<detail::Chunk>(memory, chunks.size(), BufferKind::control);
        // A copy of pageable memory may wait for earlier work inside of the driver, where other
        // ranks of this process may wait for it.
        detail::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        detail::check(cudaMemcpyAsync(_device_slices.data(), _slices.data(),
                                      _device_slices.size_bytes(), cudaMemcpyHostToDevice, stream),
                      "cudaMemcpyAsync");
        detail::check(cudaMemcpyAsync(_device_chunks.data(), chunks.data(),
                                      _device_chunks.size_bytes(), cudaMemcpyHostToDevice, stream),
                      "cudaMemcpyAsync");
        detail::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }

    /// @brief Returns the slices, in host memory.
    [[nodiscard]] zero::detail::List<Slice> const& slices() const noexcept { return _slices; }

    /// @brief Returns all slices, as an argument for kernels.
    [[nodiscard]] Range all() const noexcept { return range(0, _slices.size()); }

    /// @brief Returns slices [first, first + count), as an argument for kernels; no chunks if
    /// `count` is 0. Points into this table.
    [[nodiscard]] Range range(std::size_t first, std::size_t count) const noexcept {
        if (count == 0) {
            return {};
        }
        std::size_t const begin = _first_chunk[first];
        return {_device_slices.data(),
                _device_chunks.data() + begin,
                _first_chunk[first + count] - begin,
                _multiprocessors,
                _slices.data() + first,
                count};
    }

    /// @brief Returns the size of the table in device memory.
    [[nodiscard]] std::size_t size_bytes() const noexcept {
        return _device_slices.size_bytes() + _device_chunks.size_bytes();
    }

private:
    static std::size_t elements_of(Slice const& slice) noexcept {
        if constexpr (requires { slice.part; }) {
            return slice.part.elements;
        } else {
            return slice.elements;
        }
    }

    zero::detail::List<Slice> _slices;
    std::vector<std::size_t> _first_chunk; ///< each slice's first chunk, then the total
    Buffer<Slice> _device_slices;
    Buffer<detail::Chunk> _device_chunks;
    int _multiprocessors = 1;
    [[no_unique_address]] detail::KeptEvents _kept_events;
};

} // namespace ZERO_NAMESPACE::cuda
