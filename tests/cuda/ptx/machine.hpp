#pragma once

#include "program.hpp"

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

// The state of a running block and of its warps.

namespace zero::test::ptx {

struct Dim {
    u32 x = 1;
    u32 y = 1;
    u32 z = 1;
    [[nodiscard]] u64 count() const { return u64{x} * y * z; }
};

/// Who touched a byte of shared memory, in which interval between two barriers.
struct SharedTouch {
    u32 write_interval = 0;
    u32 writer = 0; ///< thread + 1
    u32 read_interval = 0;
    u32 reader = 0; ///< thread + 1, or `several`
    bool is_written = false;
    bool is_atomic = false; ///< the last write was
};

struct Block {
    Kernel const* kernel = nullptr;
    Dim grid;
    Dim dim;
    u32 threads = 0;
    u32 index = 0;
    u32 interval = 1; ///< between barriers
    std::vector<u8> shared;
    std::vector<SharedTouch> touches;
    std::vector<u8> const* parameters = nullptr;
    std::mt19937_64* random = nullptr;
};

enum class LaneState : u8 { ready, at_barrier, at_warp_wide, gone };

struct Frame {
    u32 back; ///< instruction to continue with
    u32 call;
};

struct Warp {
    Block* block = nullptr;
    char* registers = nullptr;
    u32 index = 0;
    Lanes live = 0;
    u32 current = 0; ///< the instruction that runs
    std::array<u32, warp_lanes> next{};
    std::array<LaneState, warp_lanes> state{};
    std::array<std::vector<Frame>, warp_lanes> stack;
    std::vector<u8> local;

    template <class T>
    [[nodiscard]] T get(Operand operand, u32 lane) const {
        return std::bit_cast<T>(
            static_cast<Bits<T>>(reinterpret_cast<Slot<T> const*>(registers + operand.at)[lane]));
    }
    template <class T>
    void set(Operand operand, u32 lane, T value) {
        reinterpret_cast<Slot<T>*>(registers + operand.at)[lane] =
            static_cast<Slot<T>>(std::bit_cast<Bits<T>>(value));
    }

    /// A register of any width as an integer.
    [[nodiscard]] u64 read(Operand operand, u32 lane) const {
        switch (operand.width) {
        case Width::eight: return get<u64>(operand, lane);
        case Width::four: return get<u32>(operand, lane);
        default: return predicate(operand) >> lane & 1U;
        }
    }
    void write(Operand operand, u32 lane, u64 value) {
        if (!operand.exists()) {
            return;
        }
        switch (operand.width) {
        case Width::eight: set<u64>(operand, lane, value); break;
        case Width::four: set<u32>(operand, lane, static_cast<u32>(value)); break;
        default: {
            Lanes& bits = raw_predicate(operand);
            bits = (bits & ~(1U << lane)) | static_cast<u32>(value & 1U) << lane;
        }
        }
    }

    /// The value of a predicate in all lanes.
    [[nodiscard]] Lanes predicate(Operand operand) const {
        Lanes const bits = *reinterpret_cast<Lanes const*>(registers + operand.at);
        return operand.is_inverted ? ~bits : bits;
    }
    void set_predicate(Operand operand, Lanes lanes, Lanes values) {
        if (operand.exists()) {
            Lanes& bits = raw_predicate(operand);
            bits = (bits & ~lanes) | (values & lanes);
        }
    }

    /// Lanes that exist.
    [[nodiscard]] Lanes existing() const {
        u32 const lanes = block->threads - index * warp_lanes;
        return lanes >= warp_lanes ? all_lanes : (1U << lanes) - 1;
    }

    [[nodiscard]] u32 thread(u32 lane) const { return index * warp_lanes + lane; }

    /// The place of the current instruction, for a finding.
    [[nodiscard]] std::string where() const {
        return block->kernel->name + " #" + std::to_string(current) + ": "
               + block->kernel->text[current];
    }
    [[nodiscard]] std::string who(u32 lane) const {
        return "block " + std::to_string(block->index) + " thread " + std::to_string(thread(lane));
    }

private:
    Lanes& raw_predicate(Operand operand) const {
        return *reinterpret_cast<Lanes*>(registers + operand.at);
    }
};

/// Calls `body(lane)` for some lanes.
template <class Body>
void for_each_lane(Lanes lanes, Body const& body) {
    if (lanes == all_lanes) {
        for (u32 lane = 0; lane < warp_lanes; ++lane) {
            body(lane);
        }
    } else {
        for (; lanes != 0; lanes &= lanes - 1) {
            body(static_cast<u32>(std::countr_zero(lanes)));
        }
    }
}

inline u32 first_lane(Lanes lanes) {
    return static_cast<u32>(std::countr_zero(lanes));
}

/// Runs a launch to its end. Findings go to `Findings`.
/// @param arguments one pointer for each parameter
void launch(Kernel const& kernel, Dim grid, Dim block, void* const* arguments,
            u32 dynamic_shared_bytes = 0);

/// Runs the warp until none of its lanes is ready, or for about that many instructions.
void run_warp(Warp& warp, u64 instructions);

/// Ends the wait of lanes at a warp-wide instruction whose other lanes never come.
void force_warp_wide(Warp& warp);

/// The operand that holds the mask of a warp-wide instruction.
Operand mask_of(Instruction const& instruction);

} // namespace zero::test::ptx
