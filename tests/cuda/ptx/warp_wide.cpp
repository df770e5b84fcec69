#include "cuda/ptx/findings.hpp"
#include "cuda/ptx/machine.hpp"
#include "cuda/ptx/opcode.hpp"

#include <algorithm>
#include <array>

// Instructions that the lanes of a mask execute together: shuffles, votes, reductions.

namespace zero::test::ptx {

namespace {

enum class Shuffle : u8 { up, down, butterfly, index };

struct ShuffleSource {
    int lane;
    bool is_in_range;
};

template <Shuffle mode>
ShuffleSource source_of(u32 lane, u32 by, u32 clamp_and_segment) {
    u32 const segment = clamp_and_segment >> 8U & 31U;
    u32 const clamp = clamp_and_segment & 31U;
    auto const own = static_cast<int>(lane);
    auto const least = static_cast<int>(lane & segment);
    auto const limit = static_cast<int>((lane & segment) | (clamp & ~segment));
    int source = 0;
    bool is_in_range = false;
    if constexpr (mode == Shuffle::up) {
        source = own - static_cast<int>(by);
        is_in_range = source >= limit;
    } else {
        source = mode == Shuffle::down        ? own + static_cast<int>(by)
                 : mode == Shuffle::butterfly ? static_cast<int>(lane ^ by)
                                              : least | static_cast<int>(by & ~segment);
        is_in_range = source <= limit;
    }
    return {is_in_range ? source : own, is_in_range};
}

/// Operands: value, whether the source is in range, a, b, c, mask.
template <Shuffle mode>
void run_shuffle(Warp& warp, Instruction const& i, Lanes lanes) {
    std::array<u32, warp_lanes> values{};
    for_each_lane(lanes, [&](u32 lane) { values[lane] = warp.get<u32>(i.operands[2], lane); });
    for_each_lane(lanes, [&](u32 lane) {
        auto const [source, is_in_range] = source_of<mode>(
            lane, warp.get<u32>(i.operands[3], lane) & 31U, warp.get<u32>(i.operands[4], lane));
        u32 value = 0xdeadbeefU;
        if ((lanes >> source & 1U) != 0) {
            value = values[static_cast<std::size_t>(source)];
        } else {
            report("shuffle reads a lane that does not take part", warp.where(),
                   warp.who(lane) + " reads lane " + std::to_string(source));
        }
        warp.write(i.operands[0], lane, value);
        warp.write(i.operands[1], lane, is_in_range ? 1 : 0);
    });
}

enum class Vote : u8 { ballot, any, all, uniform };

/// Operands: result, predicate, mask.
template <Vote kind>
void run_vote(Warp& warp, Instruction const& i, Lanes lanes) {
    Lanes const votes = warp.predicate(i.operands[1]) & lanes;
    u32 const result = kind == Vote::ballot ? votes
                       : kind == Vote::any  ? votes != 0
                       : kind == Vote::all  ? votes == lanes
                                            : votes == lanes || votes == 0;
    for_each_lane(lanes, [&](u32 lane) { warp.write(i.operands[0], lane, result); });
}

/// Operands: result, value, mask.
template <class T, class Combine>
void run_reduce(Warp& warp, Instruction const& i, Lanes lanes) {
    T total = warp.get<T>(i.operands[1], first_lane(lanes));
    for_each_lane(lanes & (lanes - 1), [&](u32 lane) {
        total = static_cast<T>(Combine{}(total, warp.get<T>(i.operands[1], lane)));
    });
    for_each_lane(lanes, [&](u32 lane) { warp.set(i.operands[0], lane, total); });
}
struct Sum {
    u32 operator()(u32 a, u32 b) const { return a + b; }
};
struct Least {
    auto operator()(auto a, auto b) const { return std::min(a, b); }
};
struct Greatest {
    auto operator()(auto a, auto b) const { return std::max(a, b); }
};
struct Both {
    u32 operator()(u32 a, u32 b) const { return a & b; }
};
struct Either {
    u32 operator()(u32 a, u32 b) const { return a | b; }
};
struct Different {
    u32 operator()(u32 a, u32 b) const { return a ^ b; }
};

/// The lanes whose value is equal. Operands: result, value, mask.
void run_match(Warp& warp, Instruction const& i, Lanes lanes) {
    for_each_lane(lanes, [&](u32 lane) {
        u32 const own = warp.get<u32>(i.operands[1], lane);
        Lanes equal = 0;
        for_each_lane(lanes, [&](u32 other) {
            equal |= warp.get<u32>(i.operands[1], other) == own ? 1U << other : 0U;
        });
        warp.write(i.operands[0], lane, equal);
    });
}

void run_warp_barrier(Warp&, Instruction const&, Lanes) {}

Execute reduction(Opcode const& opcode) {
    bool const is_signed = opcode.type().is_signed();
    return opcode.has("add")   ? run_reduce<u32, Sum>
           : opcode.has("min") ? (is_signed ? run_reduce<s32, Least> : run_reduce<u32, Least>)
           : opcode.has("max") ? (is_signed ? run_reduce<s32, Greatest> : run_reduce<u32, Greatest>)
           : opcode.has("and") ? run_reduce<u32, Both>
           : opcode.has("or")  ? run_reduce<u32, Either>
           : opcode.has("xor") ? run_reduce<u32, Different>
                               : nullptr;
}

} // namespace

Execute warp_wide(Opcode const& opcode) {
    std::string const& name = opcode.name;
    if (name == "shfl") {
        return opcode.has("up")     ? run_shuffle<Shuffle::up>
               : opcode.has("down") ? run_shuffle<Shuffle::down>
               : opcode.has("bfly") ? run_shuffle<Shuffle::butterfly>
               : opcode.has("idx")  ? run_shuffle<Shuffle::index>
                                    : nullptr;
    }
    if (name == "vote") {
        return opcode.has("ballot") ? run_vote<Vote::ballot>
               : opcode.has("any")  ? run_vote<Vote::any>
               : opcode.has("all")  ? run_vote<Vote::all>
               : opcode.has("uni")  ? run_vote<Vote::uniform>
                                    : nullptr;
    }
    if (name == "redux" && opcode.type().bytes == 4) {
        return reduction(opcode);
    }
    if (name == "match" && opcode.has("any") && opcode.type().bytes == 4) {
        return run_match;
    }
    return name == "bar" && opcode.has("warp") ? run_warp_barrier : nullptr;
}

} // namespace zero::test::ptx
