#include "cuda/ptx/machine.hpp"
#include "cuda/ptx/opcode.hpp"

#include <cmath>
#include <limits>

// Comparisons, selections and conversions.

namespace zero::test::ptx {

namespace {

enum class Comparison : u8 { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };

template <class T>
bool holds(Comparison comparison, T a, T b) {
    bool const is_unordered = std::is_floating_point_v<T> && (a != a || b != b);
    switch (comparison) {
    case Comparison::eq: return a == b;
    case Comparison::ne: return !is_unordered && a != b;
    case Comparison::lt: return a < b;
    case Comparison::le: return a <= b;
    case Comparison::gt: return a > b;
    case Comparison::ge: return a >= b;
    case Comparison::equ: return is_unordered || a == b;
    case Comparison::neu: return is_unordered || a != b;
    case Comparison::ltu: return is_unordered || a < b;
    case Comparison::leu: return is_unordered || a <= b;
    case Comparison::gtu: return is_unordered || a > b;
    case Comparison::geu: return is_unordered || a >= b;
    case Comparison::num: return !is_unordered;
    default: return is_unordered;
    }
}

/// How setp combines its result with a further predicate.
enum class Combination : u8 { none, both, either, one };

/// operation: the comparison, and the combination times 16. Operands: the result, its opposite, a,
/// b, and the further predicate.
template <class T>
void run_set_predicate(Warp& warp, Instruction const& i, Lanes lanes) {
    auto const comparison = static_cast<Comparison>(i.operation & 15U);
    Lanes found = 0;
    for_each_lane(lanes, [&](u32 lane) {
        T a = warp.get<T>(i.operands[2], lane);
        T b = warp.get<T>(i.operands[3], lane);
        if constexpr (std::is_floating_point_v<T>) {
            a = i.flushes ? flushed(a) : a;
            b = i.flushes ? flushed(b) : b;
        }
        found |= holds(comparison, a, b) ? 1U << lane : 0U;
    });
    Lanes opposite = ~found;
    auto const combination = static_cast<Combination>(i.operation >> 4U);
    if (combination != Combination::none) {
        Lanes const further = warp.predicate(i.operands[4]);
        auto const combined = [&](Lanes value) {
            return combination == Combination::both     ? value & further
                   : combination == Combination::either ? value | further
                                                        : value ^ further;
        };
        found = combined(found);
        opposite = combined(opposite);
    }
    warp.set_predicate(i.operands[0], lanes, found);
    warp.set_predicate(i.operands[1], lanes, opposite);
}

/// Compares both halves of a word.
void run_set_half_pair(Warp& warp, Instruction const& i, Lanes lanes) {
    auto const comparison = static_cast<Comparison>(i.operation & 15U);
    for_each_lane(lanes, [&](u32 lane) {
        u32 const a = warp.get<u32>(i.operands[1], lane);
        u32 const b = warp.get<u32>(i.operands[2], lane);
        auto const compare = [&](u32 shift) {
            return holds(comparison, float_of_half(static_cast<u16>(a >> shift)),
                         float_of_half(static_cast<u16>(b >> shift)))
                       ? 0xffffU << shift
                       : 0U;
        };
        warp.set(i.operands[0], lane, compare(0) | compare(16));
    });
}

template <class T>
void run_select(Warp& warp, Instruction const& i, Lanes lanes) {
    Lanes const first = warp.predicate(i.operands[3]);
    for_each_lane(lanes, [&](u32 lane) {
        bool const is_first = (first >> lane & 1U) != 0;
        warp.set(i.operands[0], lane, warp.get<T>(i.operands[is_first ? 1 : 2], lane));
    });
}

/// How a conversion rounds to an integer.
enum class Rounding : u8 { none, nearest, zero, down, up };

template <class F>
F rounded(F value, Rounding rounding) {
    switch (rounding) {
    case Rounding::nearest: return std::nearbyint(value);
    case Rounding::zero: return std::trunc(value);
    case Rounding::down: return std::floor(value);
    case Rounding::up: return std::ceil(value);
    default: return value;
    }
}

template <class To, class From>
To to_integer(From value) {
    using Limits = std::numeric_limits<To>;
    if (value != value) {
        return sizeof(To) == 8 ? static_cast<To>(u64{1} << 63U) : To(0);
    }
    auto const wide = static_cast<long double>(value);
    return wide <= static_cast<long double>(Limits::min())   ? Limits::min()
           : wide >= static_cast<long double>(Limits::max()) ? Limits::max()
                                                             : static_cast<To>(value);
}

template <class To, class From>
void run_convert(Warp& warp, Instruction const& i, Lanes lanes) {
    auto const rounding = static_cast<Rounding>(i.operation);
    for_each_lane(lanes, [&](u32 lane) {
        auto from = std::bit_cast<From>(static_cast<Bits<From>>(warp.read(i.operands[1], lane)));
        To to{};
        if constexpr (!std::is_floating_point_v<From>) {
            to = static_cast<To>(from);
        } else {
            from = i.flushes ? flushed(from) : from;
            if constexpr (std::is_floating_point_v<To>) {
                to = canonical(static_cast<To>(rounded(from, rounding)));
                to = i.flushes ? flushed(to) : to;
            } else {
                to = to_integer<To>(rounded(from, rounding));
            }
        }
        u64 bits = std::bit_cast<Bits<To>>(to);
        if constexpr (std::is_integral_v<To> && std::is_signed_v<To>) {
            bits = static_cast<u64>(static_cast<s64>(to)); // fills a wider register
        }
        warp.write(i.operands[0], lane, bits);
    });
}

/// Also of one byte, which only conversions know.
template <class Choose>
Execute for_convertible(Type type, Choose const& choose) {
    if (type.bytes == 1 && type.kind != Type::Kind::predicate) {
        return type.is_signed() ? choose(Tag<s8>{}) : choose(Tag<u8>{});
    }
    return for_number(type, choose);
}

template <float (*widen)(u16)>
void run_widen(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        auto const bits = static_cast<u16>(warp.read(i.operands[1], lane));
        warp.set(i.operands[0], lane, widen(bits));
    });
}
template <Format const& format>
void run_narrow(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        warp.write(i.operands[0], lane, rounded_to(format, warp.get<float>(i.operands[1], lane)));
    });
}
/// The first source becomes the upper half.
template <Format const& format>
void run_narrow_pair(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        u32 const upper = rounded_to(format, warp.get<float>(i.operands[1], lane));
        u32 const lower = rounded_to(format, warp.get<float>(i.operands[2], lane));
        warp.set(i.operands[0], lane, upper << 16U | lower);
    });
}

u8 comparison_of(Opcode const& opcode) {
    static std::map<std::string, Comparison> const names{
        {"eq", Comparison::eq},   {"ne", Comparison::ne},   {"lt", Comparison::lt},
        {"le", Comparison::le},   {"gt", Comparison::gt},   {"ge", Comparison::ge},
        {"lo", Comparison::lt},   {"ls", Comparison::le},   {"hi", Comparison::gt},
        {"hs", Comparison::ge},   {"equ", Comparison::equ}, {"neu", Comparison::neu},
        {"ltu", Comparison::ltu}, {"leu", Comparison::leu}, {"gtu", Comparison::gtu},
        {"geu", Comparison::geu}, {"num", Comparison::num}, {"nan", Comparison::nan}};
    auto const combination = opcode.has("and")   ? Combination::both
                             : opcode.has("or")  ? Combination::either
                             : opcode.has("xor") ? Combination::one
                                                 : Combination::none;
    return static_cast<u8>(static_cast<u8>(names.at(opcode.modifiers.at(0)))
                           | static_cast<u8>(combination) << 4U);
}

u8 rounding_of(Opcode const& opcode) {
    return static_cast<u8>(opcode.has("rni")   ? Rounding::nearest
                           : opcode.has("rzi") ? Rounding::zero
                           : opcode.has("rmi") ? Rounding::down
                           : opcode.has("rpi") ? Rounding::up
                                               : Rounding::none);
}

} // namespace

Execute comparison(Opcode const& opcode) {
    if (opcode.name == "setp") {
        return for_number(opcode.type(),
                          []<class T>(Tag<T>) -> Execute { return run_set_predicate<T>; });
    }
    if (opcode.name == "set" && opcode.type().kind == Type::Kind::half_pair
        && opcode.types[0] == type_of("u32")) {
        return run_set_half_pair;
    }
    if (opcode.name == "selp") {
        return opcode.type().bytes == 8 ? run_select<u64> : run_select<u32>;
    }
    return nullptr;
}

Execute conversion(Opcode const& opcode) {
    if (opcode.name != "cvt" || opcode.types.size() != 2) {
        return nullptr;
    }
    Type const to = opcode.types[0];
    Type const from = opcode.types[1];
    Type const single = type_of("f32");
    if (to == single && from.kind == Type::Kind::half) {
        return run_widen<float_of_half>;
    }
    if (to == single && from.kind == Type::Kind::bfloat) {
        return run_widen<float_of_bfloat>;
    }
    if (from == single) {
        switch (to.kind) {
        case Type::Kind::half: return run_narrow<half_format>;
        case Type::Kind::bfloat: return run_narrow<bfloat_format>;
        case Type::Kind::half_pair: return run_narrow_pair<half_format>;
        case Type::Kind::bfloat_pair: return run_narrow_pair<bfloat_format>;
        default: break;
        }
    }
    return for_convertible(to, [&]<class To>(Tag<To>) {
        return for_convertible(
            from, []<class From>(Tag<From>) -> Execute { return run_convert<To, From>; });
    });
}

u8 operation_of(Opcode const& opcode) {
    if (opcode.name == "setp" || opcode.name == "set") {
        return comparison_of(opcode);
    }
    return opcode.name == "cvt" ? rounding_of(opcode) : 0;
}

} // namespace zero::test::ptx
