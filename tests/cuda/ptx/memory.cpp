#include "cuda/ptx/memory.hpp"

#include <algorithm>
#include <cstring>

namespace zero::test::ptx {

void Memory::add(void* at, u64 bytes, MemoryKind kind, bool is_written) {
    _last = nullptr;
    u64 const begin = reinterpret_cast<u64>(at);
    _allocations[begin] = {begin, bytes, kind, std::vector<u8>(bytes, is_written ? 1 : 0)};
}

void Memory::remove(void* at) {
    _last = nullptr;
    _allocations.erase(reinterpret_cast<u64>(at));
}

Allocation* Memory::find(u64 address) {
    if (_last != nullptr && address - _last->begin < _last->bytes) {
        return _last;
    }
    auto const after = _allocations.upper_bound(address);
    if (after == _allocations.begin()) {
        return nullptr;
    }
    Allocation& found = std::prev(after)->second;
    return address - found.begin < found.bytes ? _last = &found : nullptr;
}

void Memory::mark_written(void const* at, u64 bytes) {
    if (Allocation* const of = find(at); of != nullptr) {
        u64 const begin = reinterpret_cast<u64>(at) - of->begin;
        std::memset(of->written.data() + begin, 1, std::min(bytes, of->bytes - begin));
    }
}

void Memory::copy_marks(void const* to, void const* from, u64 bytes) {
    Allocation const* const source = find(from);
    if (source == nullptr) {
        mark_written(to, bytes);
        return;
    }
    if (Allocation* const target = find(to); target != nullptr) {
        std::memmove(target->written.data() + (reinterpret_cast<u64>(to) - target->begin),
                     source->written.data() + (reinterpret_cast<u64>(from) - source->begin), bytes);
    }
}

GlobalTouches::Touch& GlobalTouches::at(u64 address) {
    u64 const page = address / page_bytes;
    if (_last == nullptr || page != _last_page) {
        auto& touches = _pages[page];
        if (touches == nullptr) {
            touches = std::make_unique<Touch[]>(page_bytes);
        }
        _last_page = page;
        _last = touches.get();
    }
    return _last[address % page_bytes];
}

std::optional<Race> GlobalTouches::touch(u64 address, Access access, u32 thread, u32 warp) {
    Touch& touch = at(address);
    std::optional<Race> race;
    bool const other_reads = touch.reader != 0 && touch.reader != warp;
    bool const other_writes = touch.writer != 0 && touch.writer != thread
                              && !(access == Access::atomic && touch.writer == atomics);
    if (access == Access::read) {
        if (other_writes) {
            race = {"read after write", touch.writer};
        }
        touch.reader = other_reads ? several : warp;
        return race;
    }
    bool const is_atomic = access == Access::atomic;
    if (other_writes) {
        race = {is_atomic ? "atomic after plain write" : "write after write", touch.writer};
    } else if (other_reads) {
        race = {is_atomic ? "atomic after plain read" : "write after read", touch.reader};
    }
    touch.writer = is_atomic ? atomics : thread;
    return race;
}

} // namespace zero::test::ptx
