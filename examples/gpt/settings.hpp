#pragma once

#include <zero/layout/gather_options.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpt {

/// @brief The options of the command line.
struct Settings {
    int stage = 2;
    int world = 4;
    std::string dtype = "float32";          ///< float32, bfloat16, float16
    std::string partitioner = "contiguous"; ///< contiguous, round-robin
    std::string schedule; ///< boundary, every-micro-step; empty: the default of the stage
    std::size_t bucket_bytes = std::size_t{256} * 1024;
    zero::GatherOptions gather; ///< options of stage 3
    std::size_t update_tile_elements =
        0; ///< most elements per update command, in stages 0 and 3 and on one rank; 0: all
    float skip_above_norm = 0.0F; ///< steps with a larger gradient norm change nothing; 0: no limit
    std::string offload = "none"; ///< where the states of a rank lie: none (in memory), file, host
    std::string offload_path;     ///< folder of their files
    double offload_ratio = 1.0;   ///< the part of them that lies there
    std::size_t offload_chunk_bytes = std::size_t{12} << 20U; ///< bytes per request
    bool offload_page_cache = false; ///< whether their file system may lack direct access
    bool delayed = false;            ///< whether an update runs during the next step
    std::size_t memory_limit = 0;    ///< most bytes that the engine of a rank holds; 0: no limit
    std::size_t accumulate = 1;      ///< micro-steps per step
    std::size_t micro_batches = 0;   ///< of all ranks in a step, added in a tree: the same bits for
                                     ///< each number of ranks; 0: in rank order
    bool in_rank_order = false;      ///< adds these batches in rank order all the same
    int inner_ranks = 1;   ///< ranks of a group that adds first; 1, or all ranks: one level
    std::size_t shard = 0; ///< ranks that share one copy of the states, of which the other groups
                           ///< hold replicas; 0: all ranks
    std::size_t secondary = 0;  ///< ranks that share a copy of what stage 3 gathers; 0: none
    std::string wire = "plain"; ///< how weights travel between ranks: plain, int8, int4
    std::string wire_gradients = "plain"; ///< how gradients do: plain, int4
    std::string feedback = "none";        ///< their errors are kept: none, float
    std::size_t steps = 1000;
    std::size_t layers = 2;
    std::size_t width = 64;
    std::size_t context = 64;
    std::size_t batch = 4; ///< samples per rank and micro-step
    double learning_rate = 6e-3;
    std::uint64_t seed = 1;
    std::size_t verify =
        0;              ///< steps to repeat under all stages and partitioners instead of training
    std::string save;   ///< directory of checkpoints; empty: none are saved
    std::string resume; ///< directory of the checkpoint to start from; empty: from the beginning
    std::size_t save_every = 0; ///< steps between checkpoints; 0: one at the end
    std::size_t stop_after = 0; ///< end before this step of the schedule; 0: run to its end
    std::string communicator = "loopback"; ///< loopback, mpi
    std::string order = "rank";            ///< order of sums over MPI: rank, library
    double time_out = 300.0;               ///< time-out of collectives over MPI, in seconds
    std::string text;                      ///< a file; empty: the headers of the library
    std::string timeline;                  ///< file for the trace of the last steps; empty: none
    bool is_quiet = false;                 ///< no progress lines

    [[nodiscard]] bool is_in_tree() const { return micro_batches != 0 && !in_rank_order; }

    /// @brief If `micro_batches` is given, a rank accumulates its share of them.
    void share_micro_batches() {
        if (micro_batches != 0) {
            std::size_t const share = micro_batches / static_cast<std::size_t>(world);
            accumulate = share == 0 ? 1 : share;
        }
    }
};

} // namespace gpt
