#pragma once

#include "device.hpp"
#include "host/kernel_inputs.hpp"

#include <cstddef>
#include <vector>

namespace zero::test {

/// The same numbers on the host and on the device, for the same operation on both sides.
template <class T>
class Mirror {
public:
    explicit Mirror(std::vector<T> values) : _host(std::move(values)), _device(_host) {}

    [[nodiscard]] T* host(std::size_t begin = 0) { return _host.data() + begin; }
    [[nodiscard]] T* device(std::size_t begin = 0) const { return _device.data() + begin; }
    [[nodiscard]] std::size_t size() const { return _host.size(); }

    /// Compares every bit, NaN included.
    [[nodiscard]] bool agrees() const { return same_bits(_host, on_host(_device)); }

private:
    std::vector<T> _host;
    DeviceArray<T> _device;
};

/// Lengths around packs, leaves, rounds of a block and chunks.
inline std::vector<std::size_t> const device_lengths{
    0,  1,  2,  3,  4,   5,   6,   7,   8,    9,    15,   16,   17,   31,   32,
    33, 63, 64, 65, 200, 255, 256, 257, 2047, 2048, 2049, 8191, 8192, 8193, 50000};

/// Elements before a range. Packs are aligned in every type with 0 and 8, in float only with 4, and
/// in no type with the others.
inline std::vector<std::size_t> const device_offsets{0, 1, 2, 3, 4, 5, 6, 7, 8};

} // namespace zero::test
