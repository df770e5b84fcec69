#pragma once

// Records the addresses in global memory that the threads of a kernel access, so that a test can
// count the sectors of each access of a warp. Kernels pass every address through
// `zero::cuda::detail::global`.

#include "fibers.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

namespace zero::test::emulated {

/// While an object lives, it records all accesses.
class Accesses {
public:
    Accesses() { current = this; }
    Accesses(Accesses&&) = delete;
    Accesses& operator=(Accesses&&) = delete;
    ~Accesses() { current = nullptr; }

    /// Returns the largest number of sectors of 32 bytes that one access of a warp to some memory
    /// touches. The n-th accesses of its threads count as one. Throws if a thread makes fewer
    /// accesses than others.
    [[nodiscard]] std::size_t most_sectors(void const* memory, std::size_t bytes) const {
        auto const begin = reinterpret_cast<std::uintptr_t>(memory);
        std::size_t most = 0;
        for (auto const& [warp, threads] : _warps) {
            std::vector<std::set<std::uintptr_t>> sectors;
            std::size_t accesses = 0;
            for (auto const& thread : threads) {
                std::size_t own = 0;
                for (std::uintptr_t const address : thread) {
                    if (address - begin < bytes) {
                        sectors.resize(std::max(sectors.size(), own + 1));
                        sectors[own++].insert(address / 32);
                    }
                }
                accesses += own;
            }
            if (accesses != 32 * sectors.size()) {
                throw std::runtime_error("the threads of a warp differ in their accesses");
            }
            for (auto const& one : sectors) {
                most = std::max(most, one.size());
            }
        }
        return most;
    }

    inline static std::atomic<Accesses*> current{nullptr};

    void note(std::uintptr_t address) {
        std::lock_guard const lock(_mutex);
        auto& warp = _warps[{blockIdx.x, threadIdx.x / 32}];
        warp.resize(32);
        warp[threadIdx.x % 32].push_back(address);
    }

private:
    std::mutex _mutex;
    std::map<std::pair<unsigned, unsigned>, std::vector<std::vector<std::uintptr_t>>>
        _warps; ///< addresses by thread
};

inline bool note_access(void const* memory) {
    if (Accesses* const accesses = Accesses::current.load(std::memory_order_relaxed)) {
        accesses->note(reinterpret_cast<std::uintptr_t>(memory));
    }
    return true;
}

} // namespace zero::test::emulated
