#pragma once

#include "detail/namespace.hpp"
#include "memory_resource.hpp"

#include <cstddef>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

namespace ZERO_NAMESPACE {

/// @brief Owns uninitialised memory for `size()` elements of a trivially copyable type. Move-only.
///
/// The memory comes from a `MemoryResource`, which must outlive the buffer.
template <class T>
class Buffer {
    static_assert(std::is_trivially_copyable_v<T>,
                  "zero: a Buffer holds trivially copyable elements.");

public:
    Buffer() = default;

    /// @brief Allocates, unless `elements` is 0. @throws std::bad_alloc
    Buffer(MemoryResource& resource, std::size_t elements, BufferKind kind)
        : _resource(&resource), _elements(elements), _kind(kind) {
        if (elements > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
            throw std::bad_array_new_length();
        }
        if (elements != 0) {
            _data = static_cast<T*>(resource.allocate(elements * sizeof(T), kind));
        }
    }

    Buffer(Buffer&& other) noexcept
        : _resource(other._resource), _data(std::exchange(other._data, nullptr)),
          _elements(std::exchange(other._elements, 0)), _kind(other._kind) {}

    Buffer& operator=(Buffer&& other) noexcept {
        Buffer taken(std::move(other));
        std::swap(_resource, taken._resource);
        std::swap(_data, taken._data);
        std::swap(_elements, taken._elements);
        std::swap(_kind, taken._kind);
        return *this;
    }

    ~Buffer() {
        if (_data != nullptr) {
            _resource->deallocate(_data, _elements * sizeof(T), _kind);
        }
    }

    /// @brief Pointer to the first element, or null if there are none.
    [[nodiscard]] T* data() const noexcept { return _data; }

    /// @brief Size in elements.
    [[nodiscard]] std::size_t size() const noexcept { return _elements; }

    /// @brief Size in bytes.
    [[nodiscard]] std::size_t size_bytes() const noexcept { return _elements * sizeof(T); }

    /// @brief True if the buffer holds memory.
    [[nodiscard]] explicit operator bool() const noexcept { return _data != nullptr; }

private:
    MemoryResource* _resource = nullptr;
    T* _data = nullptr;
    std::size_t _elements = 0;
    BufferKind _kind = BufferKind::control;
};

} // namespace ZERO_NAMESPACE
