#include "cuda/ptx/findings.hpp"
#include "cuda/ptx/machine.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>

// How a warp runs: lanes at one instruction advance together; lanes that diverged meet again where
// they happen to be at one instruction, and at warp-wide instructions.

namespace zero::test::ptx {

Operand mask_of(Instruction const& instruction) {
    return instruction.operands[instruction.sources]; // always the last source
}

namespace {

void check_mask(Warp& warp, Instruction const& i, Lanes arrived, Lanes mask) {
    for_each_lane(arrived, [&](u32 lane) {
        auto const own = static_cast<Lanes>(warp.read(mask_of(i), lane));
        if (own != mask) {
            report("lanes name different masks", warp.where(), warp.who(lane));
        }
        if ((own >> lane & 1U) == 0) {
            report("lane is not in its own mask", warp.where(), warp.who(lane));
        }
    });
    Lanes const absent = mask & ~warp.live;
    if (absent != 0) {
        char text[64];
        std::snprintf(text, sizeof text, ", mask %08x, live lanes %08x", mask, warp.live);
        report((absent & ~warp.existing()) != 0 ? "mask names lanes that do not exist"
                                                : "mask names lanes that have exited",
               warp.where(), warp.who(first_lane(arrived)) + text);
    }
}

void run_together(Warp& warp, u32 at, Lanes lanes) {
    Instruction const& i = warp.block->kernel->code[at];
    warp.current = at;
    i.execute(warp, i, lanes);
    for_each_lane(lanes, [&](u32 lane) {
        warp.next[lane] = at + 1;
        warp.state[lane] = LaneState::ready;
    });
}

Lanes lanes_in(Warp const& warp, LaneState state) {
    Lanes found = 0;
    for_each_lane(warp.live,
                  [&](u32 lane) { found |= warp.state[lane] == state ? 1U << lane : 0U; });
    return found;
}
Lanes lanes_at(Warp const& warp, Lanes lanes, u32 instruction) {
    Lanes found = 0;
    for_each_lane(lanes,
                  [&](u32 lane) { found |= warp.next[lane] == instruction ? 1U << lane : 0U; });
    return found;
}

/// Runs each warp-wide instruction that all lanes of its mask have reached.
void release_warp_wide(Warp& warp) {
    for (bool is_released = true; is_released;) {
        is_released = false;
        for (Lanes rest = lanes_in(warp, LaneState::at_warp_wide); rest != 0;) {
            u32 const at = warp.next[first_lane(rest)];
            Lanes const arrived = lanes_at(warp, rest, at);
            rest &= ~arrived;
            Instruction const& i = warp.block->kernel->code[at];
            warp.current = at;
            auto const mask = static_cast<Lanes>(warp.read(mask_of(i), first_lane(arrived)));
            if ((mask & warp.live & ~arrived) == 0) {
                check_mask(warp, i, arrived, mask);
                run_together(warp, at, arrived);
                is_released = true;
            }
        }
    }
}

void copy_frames(Warp& warp, u32 lane, std::vector<FrameCopy> const& copies) {
    u8* const local = warp.local.data() + lane * warp.block->kernel->local_bytes;
    for (FrameCopy const& copy : copies) {
        std::memcpy(local + copy.to, local + copy.from, copy.bytes);
    }
}

void leave(Warp& warp, u32 lane) {
    if (warp.stack[lane].empty()) {
        warp.state[lane] = LaneState::gone;
        warp.live &= ~(1U << lane);
        return;
    }
    Frame const frame = warp.stack[lane].back();
    warp.stack[lane].pop_back();
    copy_frames(warp, lane, warp.block->kernel->calls[frame.call].out);
    warp.next[lane] = frame.back;
}

/// Runs an instruction after which the lanes of the group may no longer be together. `lanes` are
/// those whose guard holds.
void run_control(Warp& warp, u32 at, Lanes group, Lanes lanes) {
    Kernel const& kernel = *warp.block->kernel;
    Instruction const& i = kernel.code[at];
    warp.current = at;
    for_each_lane(group, [&](u32 lane) { warp.next[lane] = at + 1; });
    switch (i.kind) {
    case Kind::branch: for_each_lane(lanes, [&](u32 lane) { warp.next[lane] = i.target; }); break;
    case Kind::call: {
        auto const index = static_cast<u32>(i.immediate);
        for_each_lane(lanes, [&](u32 lane) {
            copy_frames(warp, lane, kernel.calls[index].in);
            warp.stack[lane].push_back({at + 1, index});
            warp.next[lane] = kernel.calls[index].target;
        });
        break;
    }
    case Kind::trap:
        if (lanes != 0) {
            report("trap", warp.where(), warp.who(first_lane(lanes)));
        }
        for_each_lane(lanes, [&](u32 lane) { warp.stack[lane].clear(); });
        [[fallthrough]];
    case Kind::leave:
        for_each_lane(lanes, [&](u32 lane) { leave(warp, lane); });
        release_warp_wide(warp);
        break;
    case Kind::warp_wide:
        for_each_lane(lanes, [&](u32 lane) {
            warp.next[lane] = at;
            warp.state[lane] = LaneState::at_warp_wide;
        });
        release_warp_wide(warp);
        break;
    default: // a barrier of the block
        for_each_lane(lanes, [&](u32 lane) {
            warp.next[lane] = at;
            warp.state[lane] = LaneState::at_barrier;
        });
    }
}

/// Lanes at one instruction that run together, until one of the others could join them.
struct Group {
    u32 at;
    Lanes lanes;
    u32 limit;
};

Group choose_group(Warp const& warp, Lanes ready) {
    auto& random = *warp.block->random;
    bool const is_random = settings.seed != 0;
    Group group{~u32{0}, 0, ~u32{0}};
    if (is_random && random() % 8 == 0) {
        auto skipped = static_cast<u32>(random() % static_cast<u32>(std::popcount(ready)));
        Lanes rest = ready;
        for (; skipped != 0; --skipped) {
            rest &= rest - 1;
        }
        group.at = warp.next[first_lane(rest)];
    } else {
        for_each_lane(ready, [&](u32 lane) { group.at = std::min(group.at, warp.next[lane]); });
    }
    group.lanes = lanes_at(warp, ready, group.at);
    for_each_lane(ready & ~group.lanes, [&](u32 lane) {
        if (warp.next[lane] > group.at) {
            group.limit = std::min(group.limit, warp.next[lane]);
        }
    });
    if (is_random && random() % 64 == 0) { // some lanes run ahead
        Lanes const part = group.lanes & static_cast<Lanes>(random());
        if (part != 0 && part != group.lanes) {
            group.lanes = part;
            group.limit = group.at + 1 + static_cast<u32>(random() % 8);
        }
    }
    return group;
}

} // namespace

void run_warp(Warp& warp, u64 instructions) {
    std::vector<Instruction> const& code = warp.block->kernel->code;
    for (u64 count = 0; count < instructions;) {
        Lanes const ready = lanes_in(warp, LaneState::ready);
        if (ready == 0) {
            return;
        }
        auto [at, group, limit] = choose_group(warp, ready);
        u64 const before = count;
        for (bool is_together = true; is_together;) {
            Instruction const& i = code[at];
            Lanes lanes = group;
            if (i.guard.exists()) {
                lanes &= warp.predicate(i.guard);
            }
            ++count;
            bool const falls_through = i.kind == Kind::branch && lanes == 0;
            if (i.kind != Kind::plain && !falls_through) {
                run_control(warp, at, group, lanes);
                break;
            }
            if (i.kind == Kind::plain && lanes != 0) {
                warp.current = at;
                i.execute(warp, i, lanes);
            }
            ++at;
            if (at >= limit || count >= instructions) {
                for_each_lane(group, [&, next = at](u32 lane) { warp.next[lane] = next; });
                is_together = false;
            }
        }
        statistics.lane_instructions += (count - before) * static_cast<u32>(std::popcount(group));
    }
}

void force_warp_wide(Warp& warp) {
    Lanes const waiting = lanes_in(warp, LaneState::at_warp_wide);
    u32 const at = warp.next[first_lane(waiting)];
    warp.current = at;
    report("lanes of a mask never reach the instruction", warp.where(),
           warp.who(first_lane(waiting)));
    run_together(warp, at, lanes_at(warp, waiting, at));
}

} // namespace zero::test::ptx
