#pragma once

#include <zero/core/host_memory_resource.hpp>
#include <zero/core/memory_resource.hpp>

#include <cstddef>
#include <mutex>
#include <new>

namespace zero::test {

/// Refuses to hold more than a number of bytes at a time. The ring of commands is not counted: it
/// holds nothing of the model, and compared with layers of 18 kB it is large.
class LimitedMemory : public MemoryResource {
public:
    explicit LimitedMemory(std::size_t limit) : _limit(limit) {}

    void* allocate(std::size_t bytes, BufferKind kind) override {
        if (kind == BufferKind::commands) {
            return _host.allocate(bytes, kind);
        }
        std::lock_guard const lock(_mutex);
        if (bytes > _limit - _held) {
            throw std::bad_alloc();
        }
        _held += bytes;
        _most = _held > _most ? _held : _most;
        return _host.allocate(bytes, kind);
    }

    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        std::lock_guard const lock(_mutex);
        _held -= kind == BufferKind::commands ? 0 : bytes;
        _host.deallocate(memory, bytes, kind);
    }

    [[nodiscard]] std::size_t most() const { return _most; }

private:
    std::mutex _mutex;
    HostMemoryResource _host;
    std::size_t _limit;
    std::size_t _held = 0;
    std::size_t _most = 0;
};

} // namespace zero::test
