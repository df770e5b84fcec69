#include "cuda/ptx/findings.hpp"
#include "cuda/ptx/machine.hpp"
#include "cuda/ptx/memory.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace zero::test::ptx {

namespace {

constexpr char garbage = '\xcb'; ///< so that the use of a register that was never set shows
constexpr u32 most_shared_bytes = 48 * 1024;

u32 value_of(Special what, Block const& block, Warp const& warp, u32 lane, u32 dynamic_bytes) {
    Dim const& dim = block.dim;
    Dim const& grid = block.grid;
    u32 const thread = warp.thread(lane);
    switch (what) {
    case Special::thread_x: return thread % dim.x;
    case Special::thread_y: return thread / dim.x % dim.y;
    case Special::thread_z: return thread / dim.x / dim.y;
    case Special::threads_x: return dim.x;
    case Special::threads_y: return dim.y;
    case Special::threads_z: return dim.z;
    case Special::block_x: return block.index % grid.x;
    case Special::block_y: return block.index / grid.x % grid.y;
    case Special::block_z: return block.index / grid.x / grid.y;
    case Special::blocks_x: return grid.x;
    case Special::blocks_y: return grid.y;
    case Special::blocks_z: return grid.z;
    case Special::lane: return lane;
    case Special::warp: return warp.index;
    case Special::lanes_less: return (1U << lane) - 1;
    case Special::lanes_up_to: return (2U << lane) - 1;
    case Special::lanes_greater: return ~((2U << lane) - 1);
    case Special::lanes_from: return ~((1U << lane) - 1);
    case Special::lanes_equal: return 1U << lane;
    case Special::dynamic_shared_bytes: return dynamic_bytes;
    default: return 0; // the number of the multiprocessor
    }
}

/// One launch: its block, which runs for each index in turn, and the warps of it.
class Launch {
public:
    Launch(Kernel const& kernel, Dim grid, Dim dim, void* const* arguments, u32 dynamic_bytes)
        : _random(settings.seed * 1000003 + statistics.launches),
          _parameters(kernel.parameter_bytes), _dynamic_bytes(dynamic_bytes) {
        for (std::size_t index = 0; index < kernel.parameters.size(); ++index) {
            Range const& range = kernel.parameters[index];
            std::memcpy(_parameters.data() + range.begin, arguments[index], range.bytes);
        }
        _block.kernel = &kernel;
        _block.grid = grid;
        _block.dim = dim;
        _block.threads = static_cast<u32>(dim.count());
        _block.parameters = &_parameters;
        _block.random = &_random;
        _block.shared.resize(kernel.shared_bytes + dynamic_bytes);
        u32 const warps = (_block.threads + warp_lanes - 1) / warp_lanes;
        _registers.assign(std::size_t{warps} * kernel.register_bytes, garbage);
        _warps.resize(warps);
        for (u32 index = 0; index < warps; ++index) {
            Warp& warp = _warps[index];
            warp.block = &_block;
            warp.index = index;
            warp.registers = _registers.data() + std::size_t{index} * kernel.register_bytes;
            warp.local.resize(std::size_t{warp_lanes} * kernel.local_bytes);
            set_constants(warp);
        }
    }

    void run() {
        std::vector<u32> order(_block.grid.count());
        std::iota(order.begin(), order.end(), 0U);
        if (settings.seed != 0) {
            std::shuffle(order.begin(), order.end(), _random);
        }
        for (u32 const index : order) {
            begin_block(index);
            while (run_until_all_wait()) {
                end_wait();
            }
        }
        statistics.blocks += order.size();
        global_touches.clear();
    }

private:
    void set_constants(Warp& warp) const {
        for (auto const& [place, bits] : _block.kernel->constants) {
            for_each_lane(all_lanes, [&, place = place, bits = bits](u32 lane) {
                warp.write(place, lane, bits);
            });
        }
    }

    void begin_block(u32 index) {
        _block.index = index;
        _block.interval = 1;
        std::fill(_block.shared.begin(), _block.shared.end(), static_cast<u8>(0xa0 + index));
        _block.touches.assign(_block.shared.size(), {});
        for (Warp& warp : _warps) {
            warp.live = warp.existing();
            warp.next.fill(0);
            for_each_lane(all_lanes, [&](u32 lane) {
                warp.stack[lane].clear();
                bool const exists = (warp.live >> lane & 1U) != 0;
                warp.state[lane] = exists ? LaneState::ready : LaneState::gone;
            });
            for (auto const& [place, what] : _block.kernel->specials) {
                for_each_lane(all_lanes, [&, place = place, what = what](u32 lane) {
                    warp.set(place, lane, value_of(what, _block, warp, lane, _dynamic_bytes));
                });
            }
        }
    }

    /// Runs warps until no lane is ready. Returns whether lanes wait; otherwise the block is done.
    bool run_until_all_wait() {
        static constexpr std::array<u64, 4> turns{20, 300, 5000, ~u64{0}};
        for (;;) {
            std::vector<Warp*> ready;
            bool is_any_live = false;
            for (Warp& warp : _warps) {
                is_any_live = is_any_live || warp.live != 0;
                if (has_lane(warp, LaneState::ready)) {
                    ready.push_back(&warp);
                }
            }
            if (ready.empty()) {
                return is_any_live;
            }
            bool const is_random = settings.seed != 0;
            run_warp(*ready[is_random ? _random() % ready.size() : 0],
                     is_random ? turns[_random() % turns.size()] : turns.back());
        }
    }

    static bool has_lane(Warp const& warp, LaneState state) {
        bool found = false;
        for_each_lane(warp.live, [&](u32 lane) { found = found || warp.state[lane] == state; });
        return found;
    }

    void end_wait() {
        auto const stuck = std::find_if(_warps.begin(), _warps.end(), [](Warp const& warp) {
            return has_lane(warp, LaneState::at_warp_wide);
        });
        if (stuck != _warps.end()) {
            force_warp_wide(*stuck);
        } else {
            pass_barrier();
        }
    }

    template <class Body>
    void for_each_live(Body const& body) {
        for (Warp& warp : _warps) {
            for_each_lane(warp.live, [&](u32 lane) { body(warp, lane); });
        }
    }

    void pass_barrier() {
        Kernel const& kernel = *_block.kernel;
        Warp* first = nullptr;
        bool is_mixed = false;
        u32 live = 0;
        u32 votes = 0;
        for_each_live([&](Warp& warp, u32 lane) {
            ++live;
            if (first == nullptr) {
                first = &warp;
                warp.current = warp.next[lane];
            }
            is_mixed = is_mixed || warp.next[lane] != first->current;
            Instruction const& i = kernel.code[warp.next[lane]];
            if (i.kind == Kind::reducing_barrier) {
                votes += warp.predicate(i.operands[2]) >> lane & 1U;
            }
        });
        std::string const who = "block " + std::to_string(_block.index);
        if (is_mixed) {
            report("threads of a block wait at different barriers", first->where(), who);
        }
        if (live != _block.threads) {
            report("barrier that some threads have left out by exiting", first->where(), who);
        }
        for_each_live([&](Warp& warp, u32 lane) {
            Instruction const& i = kernel.code[warp.next[lane]];
            if (i.kind == Kind::reducing_barrier) { // or, and, popc
                u32 const value = i.operation == 0   ? votes != 0
                                  : i.operation == 1 ? votes == live
                                                     : votes;
                warp.write(i.operands[0], lane, value);
            }
            warp.state[lane] = LaneState::ready;
            ++warp.next[lane];
        });
        ++_block.interval;
    }

    std::mt19937_64 _random;
    std::vector<u8> _parameters;
    u32 _dynamic_bytes;
    Block _block;
    std::vector<char> _registers;
    std::vector<Warp> _warps;
};

} // namespace

void launch(Kernel const& kernel, Dim grid, Dim block, void* const* arguments,
            u32 dynamic_shared_bytes) {
    ++statistics.launches;
    if (!kernel.defect.empty()) {
        report("kernel cannot run", kernel.name, kernel.defect);
        return;
    }
    auto const refuse = [&](char const* what) { report("launch is refused", kernel.name, what); };
    u64 const threads = block.count();
    if (threads == 0 || threads > 1024 || block.z > 64) {
        refuse("a block has 1 to 1024 threads, at most 64 deep");
    } else if (threads > kernel.most_threads) {
        refuse("more threads than the launch bounds of the kernel");
    } else if (kernel.shared_bytes + dynamic_shared_bytes > most_shared_bytes) {
        refuse("more than 48 KiB of shared memory");
    } else if (grid.count() == 0 || grid.x > 0x7fffffffU || grid.y > 65535 || grid.z > 65535) {
        refuse("the grid is out of range");
    } else {
        Launch(kernel, grid, block, arguments, dynamic_shared_bytes).run();
    }
}

} // namespace zero::test::ptx
