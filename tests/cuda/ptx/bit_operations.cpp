#include "cuda/ptx/machine.hpp"
#include "cuda/ptx/opcode.hpp"

#include <algorithm>
#include <bit>
#include <chrono>

namespace zero::test::ptx {

namespace {

struct And {
    u64 operator()(u64 a, u64 b) const { return a & b; }
};
struct Or {
    u64 operator()(u64 a, u64 b) const { return a | b; }
};
struct Xor {
    u64 operator()(u64 a, u64 b) const { return a ^ b; }
};
template <class T, class Operation>
void run_logic(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        u64 const value = Operation{}(static_cast<u64>(warp.get<T>(i.operands[1], lane)),
                                      static_cast<u64>(warp.get<T>(i.operands[2], lane)));
        warp.set(i.operands[0], lane, static_cast<T>(value));
    });
}
template <class Operation>
void run_logic_of_predicates(Warp& warp, Instruction const& i, Lanes lanes) {
    u64 const value = Operation{}(warp.predicate(i.operands[1]), warp.predicate(i.operands[2]));
    warp.set_predicate(i.operands[0], lanes, static_cast<Lanes>(value));
}
template <class Operation>
Execute logic(Type type) {
    if (type.kind == Type::Kind::predicate) {
        return run_logic_of_predicates<Operation>;
    }
    return for_integer(type, []<class T>(Tag<T>) -> Execute { return run_logic<T, Operation>; });
}

template <class T>
void run_not(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        warp.set(i.operands[0], lane, static_cast<T>(~warp.get<T>(i.operands[1], lane)));
    });
}
void run_not_of_predicates(Warp& warp, Instruction const& i, Lanes lanes) {
    warp.set_predicate(i.operands[0], lanes, ~warp.predicate(i.operands[1]));
}
template <class T>
void run_is_zero(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        warp.set(i.operands[0], lane, static_cast<T>(warp.get<T>(i.operands[1], lane) == 0));
    });
}

struct CountOnes {
    u64 operator()(auto bits) const { return static_cast<u64>(std::popcount(bits)); }
};
struct CountLeadingZeros {
    u64 operator()(auto bits) const { return static_cast<u64>(std::countl_zero(bits)); }
};
struct Reverse {
    template <class U>
    u64 operator()(U bits) const {
        u64 reversed = 0;
        for (u32 bit = 0; bit < 8 * sizeof(U); ++bit) {
            reversed = reversed << 1U | (static_cast<u64>(bits) >> bit & 1U);
        }
        return reversed;
    }
};
template <class T, class Operation>
void run_on_bits(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        warp.write(i.operands[0], lane, Operation{}(warp.get<Bits<T>>(i.operands[1], lane)));
    });
}
template <class Operation>
Execute on_bits(Type type) {
    return for_integer(type, []<class T>(Tag<T>) -> Execute { return run_on_bits<T, Operation>; });
}

template <class T, bool is_left>
void run_shift(Warp& warp, Instruction const& i, Lanes lanes) {
    constexpr u32 bits = 8 * sizeof(T);
    for_each_lane(lanes, [&](u32 lane) {
        T const value = warp.get<T>(i.operands[1], lane);
        u32 const by = warp.get<u32>(i.operands[2], lane);
        T shifted = std::is_signed_v<T> && !is_left && value < 0 ? static_cast<T>(-1) : T(0);
        if (by < bits) {
            shifted = is_left ? static_cast<T>(static_cast<Bits<T>>(value) << by)
                              : static_cast<T>(value >> by);
        }
        warp.set(i.operands[0], lane, shifted);
    });
}
template <bool is_left>
Execute shift(Type type) {
    return for_integer(type, []<class T>(Tag<T>) -> Execute { return run_shift<T, is_left>; });
}

/// Shifts two words and returns one.
template <bool is_right, bool wraps>
void run_funnel_shift(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        u64 const words =
            u64{warp.get<u32>(i.operands[2], lane)} << 32U | warp.get<u32>(i.operands[1], lane);
        u32 const asked = warp.get<u32>(i.operands[3], lane);
        u32 const by = wraps ? asked & 31U : std::min(asked, 32U);
        u64 const shifted = is_right ? words >> by : by == 0 ? words >> 32U : words << by >> 32U;
        warp.set(i.operands[0], lane, static_cast<u32>(shifted));
    });
}

/// Any function of three bits: the immediate is its table.
void run_lop3(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        u32 const a = warp.get<u32>(i.operands[1], lane);
        u32 const b = warp.get<u32>(i.operands[2], lane);
        u32 const c = warp.get<u32>(i.operands[3], lane);
        u32 value = 0;
        for (u32 row = 0; row < 8; ++row) {
            if ((i.immediate >> row & 1) != 0) {
                value |= ((row & 4U) != 0 ? a : ~a) & ((row & 2U) != 0 ? b : ~b)
                         & ((row & 1U) != 0 ? c : ~c);
            }
        }
        warp.set(i.operands[0], lane, value);
    });
}

/// Picks four of eight bytes, or their signs.
void run_permute(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        u64 const bytes =
            u64{warp.get<u32>(i.operands[2], lane)} << 32U | warp.get<u32>(i.operands[1], lane);
        u32 const selector = warp.get<u32>(i.operands[3], lane);
        u32 value = 0;
        for (u32 to = 0; to < 4; ++to) {
            u32 const pick = selector >> 4 * to & 15U;
            u32 byte = static_cast<u32>(bytes >> 8 * (pick & 7U)) & 255U;
            if ((pick & 8U) != 0) {
                byte = (byte & 128U) != 0 ? 255U : 0U;
            }
            value |= byte << 8 * to;
        }
        warp.set(i.operands[0], lane, value);
    });
}

template <class T>
void run_insert(Warp& warp, Instruction const& i, Lanes lanes) {
    using U = Bits<T>;
    for_each_lane(lanes, [&](u32 lane) {
        U const from = warp.get<U>(i.operands[1], lane);
        U value = warp.get<U>(i.operands[2], lane);
        u32 const begin = warp.get<u32>(i.operands[3], lane) & 255U;
        u32 const count = warp.get<u32>(i.operands[4], lane) & 255U;
        for (u32 bit = 0; bit < count && begin + bit < 8 * sizeof(U); ++bit) {
            U const mask = static_cast<U>(U(1) << (begin + bit));
            value = static_cast<U>((from >> bit & 1U) != 0 ? value | mask : value & ~mask);
        }
        warp.set(i.operands[0], lane, value);
    });
}

template <class T>
void run_extract(Warp& warp, Instruction const& i, Lanes lanes) {
    using U = Bits<T>;
    constexpr u32 bits = 8 * sizeof(T);
    for_each_lane(lanes, [&](u32 lane) {
        U const from = warp.get<U>(i.operands[1], lane);
        u32 const begin = warp.get<u32>(i.operands[2], lane) & 255U;
        u32 const count = warp.get<u32>(i.operands[3], lane) & 255U;
        bool const sign = std::is_signed_v<T> && count != 0
                          && (from >> std::min(begin + count - 1, bits - 1) & 1U) != 0;
        U value = 0;
        for (u32 bit = 0; bit < bits; ++bit) {
            bool const is_set =
                bit < count && begin + bit < bits ? (from >> (begin + bit) & 1U) != 0 : sign;
            value = static_cast<U>(value | static_cast<U>(is_set ? U(1) << bit : U(0)));
        }
        warp.set(i.operands[0], lane, value);
    });
}

void run_move(Warp& warp, Instruction const& i, Lanes lanes) {
    if (i.operands[0].width == Width::predicate) {
        warp.set_predicate(i.operands[0], lanes, warp.predicate(i.operands[1]));
        return;
    }
    for_each_lane(
        lanes, [&](u32 lane) { warp.write(i.operands[0], lane, warp.read(i.operands[1], lane)); });
}

u64 low_bits(u64 value, u32 bits) {
    return bits >= 64 ? value : value & ((u64{1} << bits) - 1);
}
void run_pack(Warp& warp, Instruction const& i, Lanes lanes) {
    u32 const bits = 8U * i.bytes;
    for_each_lane(lanes, [&](u32 lane) {
        u64 value = 0;
        for (u32 element = 0; element < i.elements; ++element) {
            value |= low_bits(warp.read(i.operands[1 + element], lane), bits) << element * bits;
        }
        warp.write(i.operands[0], lane, value);
    });
}
void run_unpack(Warp& warp, Instruction const& i, Lanes lanes) {
    u32 const bits = 8U * i.bytes;
    for_each_lane(lanes, [&](u32 lane) {
        u64 const value = warp.read(i.operands[i.elements], lane);
        for (u32 element = 0; element < i.elements; ++element) {
            warp.write(i.operands[element], lane, low_bits(value >> element * bits, bits));
        }
    });
}

void run_clock(Warp& warp, Instruction const& i, Lanes lanes) {
    auto const now = static_cast<u64>(std::chrono::steady_clock::now().time_since_epoch().count());
    for_each_lane(lanes, [&](u32 lane) { warp.write(i.operands[0], lane, now); });
}

void run_nothing(Warp&, Instruction const&, Lanes) {}

} // namespace

Execute bit_operation(Opcode const& opcode) {
    std::string const& name = opcode.name;
    Type const type = opcode.type();
    if (name == "not") {
        return type.kind == Type::Kind::predicate
                   ? run_not_of_predicates
                   : for_integer(type, []<class T>(Tag<T>) -> Execute { return run_not<T>; });
    }
    if (name == "cnot") {
        return for_integer(type, []<class T>(Tag<T>) -> Execute { return run_is_zero<T>; });
    }
    if (name == "shf") {
        return opcode.has("wrap") ? (opcode.has("r") ? run_funnel_shift<true, true>
                                                     : run_funnel_shift<false, true>)
                                  : (opcode.has("r") ? run_funnel_shift<true, false>
                                                     : run_funnel_shift<false, false>);
    }
    if (name == "bfi") {
        return for_integer(type, []<class T>(Tag<T>) -> Execute { return run_insert<T>; });
    }
    if (name == "bfe") {
        return for_integer(type, []<class T>(Tag<T>) -> Execute { return run_extract<T>; });
    }
    return name == "and"      ? logic<And>(type)
           : name == "or"     ? logic<Or>(type)
           : name == "xor"    ? logic<Xor>(type)
           : name == "popc"   ? on_bits<CountOnes>(type)
           : name == "clz"    ? on_bits<CountLeadingZeros>(type)
           : name == "brev"   ? on_bits<Reverse>(type)
           : name == "shl"    ? shift<true>(type)
           : name == "shr"    ? shift<false>(type)
           : name == "lop3"   ? run_lop3
           : name == "prmt"   ? run_permute
           : name == "mov"    ? run_move
           : name == "pack"   ? run_pack // mov from or to a list of registers
           : name == "unpack" ? run_unpack
           : name == "clock"  ? run_clock // mov from a clock
           : name == "membar" || name == "fence" || name == "nanosleep" || name == "prefetch"
                   || name == "prefetchu"
               ? run_nothing
               : nullptr;
}

} // namespace zero::test::ptx
