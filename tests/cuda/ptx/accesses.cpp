#include "cuda/ptx/findings.hpp"
#include "cuda/ptx/machine.hpp"
#include "cuda/ptx/memory.hpp"
#include "cuda/ptx/opcode.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

// Loads, stores and atomic operations. Each address is checked: alignment, bounds, whether what is
// read was written, and whether another thread touched it without a barrier between.

namespace zero::test::ptx {

namespace {

using Access = GlobalTouches::Access;

/// Generic addresses of memory that is not global begin here.
constexpr u64 shared_window = 0x5000'0000'0000U;
constexpr u64 local_window = 0x5100'0000'0000U;
constexpr u64 parameter_window = 0x5200'0000'0000U;
constexpr u64 window_bytes = 1U << 20U;

constexpr u64 window_of(Space space) {
    return space == Space::shared      ? shared_window
           : space == Space::local     ? local_window
           : space == Space::parameter ? parameter_window
                                       : 0;
}

/// Returns the space of a generic address, and makes the address relative to it.
Space resolve_generic(u64& address) {
    for (Space const space : {Space::shared, Space::local, Space::parameter}) {
        if (address - window_of(space) < window_bytes) {
            address -= window_of(space);
            return space;
        }
    }
    return Space::global;
}

/// One access of one lane.
class LaneAccess {
public:
    LaneAccess(Warp& warp, Instruction const& instruction, u32 lane, u64 address, u32 bytes,
               Access access)
        : _warp(warp), _instruction(instruction), _lane(lane), _address(address), _bytes(bytes),
          _access(access) {}

    /// Returns where the host accesses the memory: a scratch area if the access is refused.
    u8* resolve() {
        if (_address % _bytes != 0) {
            return refuse("misaligned access");
        }
        Space const space =
            _instruction.space == Space::generic ? resolve_generic(_address) : _instruction.space;
        switch (space) {
        case Space::shared: return resolve_shared();
        case Space::local: {
            u64 const bytes = _warp.block->kernel->local_bytes;
            return _address + _bytes > bytes ? refuse("local access out of bounds")
                                             : _warp.local.data() + _lane * bytes + _address;
        }
        case Space::parameter: {
            auto const& parameters = *_warp.block->parameters;
            return _access != Access::read ? refuse("store to a parameter")
                   : _address + _bytes > parameters.size()
                       ? refuse("parameter out of bounds")
                       : const_cast<u8*>(parameters.data()) + _address;
        }
        default: return resolve_global();
        }
    }

private:
    void note(std::string const& what, std::string const& more = {}) const {
        std::array<char, 64> text{};
        std::snprintf(text.data(), text.size(), ", address 0x%llx, %u bytes",
                      static_cast<unsigned long long>(_address), _bytes);
        report(what, _warp.where(), _warp.who(_lane) + text.data() + more);
    }
    u8* refuse(char const* what) const {
        static std::array<u8, 64> scratch;
        scratch.fill(0xa5);
        note(what);
        return scratch.data();
    }

    u8* resolve_shared() {
        Block& block = *_warp.block;
        if (_address + _bytes > block.shared.size()) {
            return refuse("shared access out of bounds");
        }
        for (u64 at = _address; at < _address + _bytes; ++at) {
            touch_shared(block.touches[at], block.interval);
        }
        return block.shared.data() + _address;
    }

    void touch_shared(SharedTouch& touch, u32 interval) const {
        constexpr u32 several = GlobalTouches::several;
        u32 const me = _warp.thread(_lane) + 1;
        bool const is_atomic = _access == Access::atomic;
        if (_access != Access::write && !touch.is_written) {
            note("read of uninitialised shared memory");
        }
        auto const race = [&](char const* what, u32 other) {
            bool const is_same_warp = other != several && (other - 1) / warp_lanes == _warp.index;
            note(std::string("race on shared memory ")
                     + (is_same_warp ? "within a warp: " : "between warps: ") + what,
                 other == several ? " and several threads"
                                  : " and thread " + std::to_string(other - 1));
        };
        bool const other_wrote = touch.write_interval == interval && touch.writer != me
                                 && !(is_atomic && touch.is_atomic);
        bool const other_read = touch.read_interval == interval && touch.reader != me;
        if (settings.checks_races && other_wrote) {
            race(_access == Access::read ? "read after write" : "write after write", touch.writer);
        }
        if (settings.checks_races && _access != Access::read && other_read) {
            race("write after read", touch.reader);
        }
        if (_access == Access::read) {
            touch.is_written = true; // reported once
            touch.reader = other_read ? several : me;
            touch.read_interval = interval;
        } else {
            touch.is_written = true;
            touch.write_interval = interval;
            touch.writer = me;
            touch.is_atomic = is_atomic;
        }
    }

    u8* resolve_global() {
        Memory& memory = Memory::instance();
        Allocation* const of = memory.find(_address);
        if (of == nullptr) {
            return refuse("global access outside every allocation");
        }
        u64 const begin = _address - of->begin;
        if (begin + _bytes > of->bytes) {
            return refuse("global access past the end of an allocation");
        }
        auto const written = of->written.begin() + static_cast<std::ptrdiff_t>(begin);
        if (_access != Access::write && std::count(written, written + _bytes, 0) != 0) {
            note("read of uninitialised global memory");
        }
        std::fill_n(written, _bytes, u8{1}); // a read is reported once
        if (settings.checks_races) {
            touch_global();
        }
        return memory.access(_address);
    }

    void touch_global() const {
        Block const& block = *_warp.block;
        u32 const warps = (block.threads + warp_lanes - 1) / warp_lanes;
        u32 const thread = block.index * block.threads + _warp.thread(_lane) + 1;
        u32 const warp = block.index * warps + _warp.index + 1;
        for (u32 byte = 0; byte < _bytes; ++byte) {
            auto const race = global_touches.touch(_address + byte, _access, thread, warp);
            if (race) {
                note(std::string("race on global memory: ") + race->what,
                     race->other >= GlobalTouches::several
                         ? " and several threads or atomics"
                         : " and thread or reading warp " + std::to_string(race->other - 1)
                               + " of the launch");
            }
        }
    }

    Warp& _warp;
    Instruction const& _instruction;
    u32 _lane;
    u64 _address;
    u32 _bytes;
    Access _access;
};

u64 address_of(Warp const& warp, Instruction const& i, Operand base, u32 lane) {
    u64 const address = (base.exists() ? warp.read(base, lane) : 0) + static_cast<u64>(i.immediate);
    bool const is_short = base.exists() && base.width == Width::four; // of shared memory
    return is_short ? static_cast<u32>(address) : address;
}

u64 extended(Instruction const& i, u64 value) {
    if (!i.is_signed || i.bytes == 8) {
        return value;
    }
    u32 const shift = 64U - 8U * i.bytes;
    return static_cast<u64>(static_cast<s64>(value << shift) >> shift);
}

/// Operands: destinations, address.
void run_load(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        u64 const address = address_of(warp, i, i.operands[i.elements], lane);
        u8 const* const from =
            LaneAccess(warp, i, lane, address, u32{i.bytes} * i.elements, Access::read).resolve();
        for (u32 element = 0; element < i.elements; ++element) {
            u64 value = 0;
            std::memcpy(&value, from + element * i.bytes, i.bytes);
            warp.write(i.operands[element], lane, extended(i, value));
        }
    });
}

/// Operands: address, sources.
void run_store(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        u64 const address = address_of(warp, i, i.operands[0], lane);
        u8* const to =
            LaneAccess(warp, i, lane, address, u32{i.bytes} * i.elements, Access::write).resolve();
        for (u32 element = 0; element < i.elements; ++element) {
            u64 const value = warp.read(i.operands[1 + element], lane);
            std::memcpy(to + element * i.bytes, &value, i.bytes);
        }
    });
}

struct AtomicAdd {
    template <class T>
    T operator()(T old, T b, T) const {
        return static_cast<T>(old + b);
    }
};
struct AtomicMin {
    template <class T>
    T operator()(T old, T b, T) const {
        return b < old ? b : old;
    }
};
struct AtomicMax {
    template <class T>
    T operator()(T old, T b, T) const {
        return old < b ? b : old;
    }
};
struct Exchange {
    template <class T>
    T operator()(T, T b, T) const {
        return b;
    }
};
struct CompareAndSwap {
    template <class T>
    T operator()(T old, T b, T c) const {
        return old == b ? c : old;
    }
};
template <char operation>
struct AtomicLogic {
    template <class T>
    T operator()(T old, T b, T) const {
        return static_cast<T>(operation == '&' ? old & b : operation == '|' ? old | b : old ^ b);
    }
};

/// Operands: the old value or none, address, b, c.
template <class T, class Operation>
void run_atomic(Warp& warp, Instruction const& i, Lanes lanes) {
    std::array<u32, warp_lanes> order{};
    u32 count = 0;
    for_each_lane(lanes, [&](u32 lane) { order[count++] = lane; });
    if (settings.seed != 0) {
        std::shuffle(order.begin(), order.begin() + count, *warp.block->random);
    }
    for (u32 at = 0; at < count; ++at) {
        u32 const lane = order[at];
        u64 const address = address_of(warp, i, i.operands[1], lane);
        u8* const memory = LaneAccess(warp, i, lane, address, sizeof(T), Access::atomic).resolve();
        T old{};
        std::memcpy(&old, memory, sizeof old);
        T const c = i.operands[3].exists() ? warp.get<T>(i.operands[3], lane) : T{};
        T const value = Operation{}(old, warp.get<T>(i.operands[2], lane), c);
        std::memcpy(memory, &value, sizeof value);
        if (i.operands[0].exists()) {
            warp.set(i.operands[0], lane, old);
        }
    }
}
template <class Operation>
Execute atomic_of_integers(Type type) {
    return for_integer(type, []<class T>(Tag<T>) -> Execute { return run_atomic<T, Operation>; });
}

Execute atomic(Opcode const& opcode) {
    Type const type = opcode.type();
    if (opcode.has("add")) {
        return for_number(type,
                          []<class T>(Tag<T>) -> Execute { return run_atomic<T, AtomicAdd>; });
    }
    return opcode.has("min")    ? atomic_of_integers<AtomicMin>(type)
           : opcode.has("max")  ? atomic_of_integers<AtomicMax>(type)
           : opcode.has("exch") ? atomic_of_integers<Exchange>(type)
           : opcode.has("cas")  ? atomic_of_integers<CompareAndSwap>(type)
           : opcode.has("and")  ? atomic_of_integers<AtomicLogic<'&'>>(type)
           : opcode.has("or")   ? atomic_of_integers<AtomicLogic<'|'>>(type)
           : opcode.has("xor")  ? atomic_of_integers<AtomicLogic<'^'>>(type)
                                : nullptr;
}

/// Between an address of a space and a generic one.
template <bool to_space>
void run_convert_address(Warp& warp, Instruction const& i, Lanes lanes) {
    u64 const window = window_of(i.space);
    for_each_lane(lanes, [&](u32 lane) {
        u64 const address = warp.read(i.operands[1], lane);
        warp.write(i.operands[0], lane, to_space ? address - window : address + window);
    });
}

void run_is_in_space(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        u64 address = warp.read(i.operands[1], lane);
        warp.write(i.operands[0], lane, resolve_generic(address) == i.space ? 1 : 0);
    });
}

} // namespace

Execute memory_access(Opcode const& opcode) {
    std::string const& name = opcode.name;
    return name == "ld" || name == "ldu"        ? run_load
           : name == "st"                       ? run_store
           : name == "atom" || name == "red"    ? atomic(opcode)
           : name == "cvta" && opcode.has("to") ? run_convert_address<true>
           : name == "cvta"                     ? run_convert_address<false>
           : name == "isspacep"                 ? run_is_in_space
                                                : nullptr;
}

} // namespace zero::test::ptx
