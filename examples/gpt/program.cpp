// A separate file, so that nvcc does not parse CLI11.

#include "program.hpp"

#include "ngram.hpp"
#include "tables.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

namespace gpt {

namespace {

/// Adds the options of stage 3, and of the update.
void add_gather_options(CLI::App& app, Settings& settings) {
    zero::GatherOptions& gather = settings.gather;
    auto const elements = [&](char const* option, auto& value, char const* help) {
        app.add_option(option, value, help)->group("Stage 3");
    };
    elements("--prefetch-elements", gather.prefetch_elements,
             "elements gathered in advance (default: one unit)");
    elements("--persistence-threshold", gather.persistence_threshold,
             "parameters of at most this many elements stay gathered until the update");
    elements("--max-persistent-elements", gather.max_persistent_elements,
             "elements of all persistent parameters");
    elements("--max-reuse-distance", gather.max_reuse_distance,
             "a unit stays gathered if it comes again within this many elements");
    elements("--keep-after-forward", gather.keep_after_forward,
             "units at the end of the forward pass that stay gathered");
    elements("--keep-until-update", gather.keep_until_update,
             "elements of units that stay gathered until the update");
    elements("--max-live-elements", gather.max_live_elements, "elements gathered at once");
    app.add_flag("--own-gathers", gather.own_communicator,
                 "gathers have a communicator and a queue of their own")
        ->group("Stage 3");
    app.add_option("--update-tile-elements", settings.update_tile_elements,
                   "elements updated by one command in stages 0 and 3 (default: all)");
}

/// Adds the options of memory.
void add_memory_options(CLI::App& app, Settings& settings) {
    app.add_option(
        "--memory-limit", settings.memory_limit,
        "most bytes that the engine of a rank may hold besides its commands (default: no "
        "limit)");
    app.add_option("--offload", settings.offload,
                   "where optimizer states and master weights lie: file (train_gpt, with --dtype "
                   "bfloat16; in stage 3 parameters as well), or host, which updates them "
                   "(cuda_train_gpt, in stage 2)")
        ->check(CLI::IsMember({"none", "file", "host"}))
        ->capture_default_str();
    app.add_option("--offload-path", settings.offload_path, "folder of the files");
    app.add_option("--offload-ratio", settings.offload_ratio, "the part that lies in files, 0 to 1")
        ->capture_default_str();
    app.add_option("--offload-chunk-bytes", settings.offload_chunk_bytes, "bytes per request")
        ->capture_default_str();
    app.add_flag("--offload-page-cache", settings.offload_page_cache,
                 "the folder may lie on a file system without direct access");
    app.add_flag("--delayed", settings.delayed,
                 "the update of a step runs during the next one (train_gpt with --offload file)");
}

std::string library_headers() {
    std::vector<std::string> paths;
    for (auto const& entry : std::filesystem::recursive_directory_iterator(
             std::string(ZERO_SOURCE_DIR) + "/include/zero")) {
        if (entry.is_regular_file()) {
            paths.push_back(entry.path().string());
        }
    }
    std::sort(paths.begin(), paths.end());
    return read_files(paths);
}

std::string read_text(Settings const& settings) {
    if (settings.text.empty()) {
        return library_headers();
    }
    std::vector<std::string> const paths{settings.text};
    return read_files(paths);
}

int train_once(Settings const& settings, Text const& text, Training const& train) {
    NgramLosses const simple = ngram_losses(text.training(), text.validation());
    std::printf("%zu bytes of text, %d ranks, stage %d, %s, %s partitioner\n",
                text.training().size() + text.validation().size(), settings.world, settings.stage,
                settings.dtype.c_str(), settings.partitioner.c_str());
    Summary const summary = train(settings, text);
    std::printf("%zu parameters; validation loss %.4f nats per byte (unigram %.4f, bigram %.4f)\n",
                summary.parameters, summary.validation_loss, simple.unigram, simple.bigram);
    print_memory(summary);
    print_traffic(summary);
    print_gathers(summary);
    if (!settings.timeline.empty()) {
        print_hidden(summary);
    }
    std::printf("\nparameters: %016llx\n", static_cast<unsigned long long>(summary.hash));
    return 0;
}

int verify(Settings settings, Text const& text, Training const& train) {
    settings.steps = settings.verify;
    settings.is_quiet = true;
    settings.schedule =
        settings.schedule.empty() && !settings.is_in_tree()
            ? "boundary"
            : settings.schedule; // a schedule is part of the arithmetic, a stage is not
    std::printf("%zu steps under every stage and partitioner, %d ranks, %s, schedule %s\n",
                settings.steps, settings.world, settings.dtype.c_str(),
                settings.schedule.empty() ? "every-micro-step, in a tree"
                                          : settings.schedule.c_str());
    bool is_identical = true;
    std::uint64_t first = 0;
    for (int stage = 0; stage < 4; ++stage) {
        for (std::string const partitioner : {"contiguous", "round-robin"}) {
            settings.stage = stage;
            settings.partitioner = partitioner;
            Summary const summary = train(settings, text);
            std::size_t most = 0;
            for (auto const& rank : summary.ranks) {
                most = std::max(most, rank.plan.engine_bytes());
            }
            first = stage == 0 && partitioner == "contiguous" ? summary.hash : first;
            is_identical = is_identical && summary.hash == first;
            std::printf("stage %d  %-12s parameters: %016llx  %10zu bytes on the fullest rank\n",
                        stage, partitioner.c_str(), static_cast<unsigned long long>(summary.hash),
                        most);
            std::fflush(stdout);
        }
    }
    std::printf("stages 0, 1, 2, 3: final parameters %s\n",
                is_identical ? "bit-identical" : "DIFFER");
    return is_identical ? 0 : 1;
}

} // namespace

int run_program(int argc, char** argv, char const* name, char const* description,
                std::function<bool(Settings&)> const& prepare, Training const& train) {
    Settings settings;
    CLI::App app(description);
    app.add_option("--stage", settings.stage, "ZeRO stage")
        ->check(CLI::Range(0, 3))
        ->capture_default_str();
    app.add_option("--world", settings.world, "number of ranks")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    app.add_option("--dtype", settings.dtype, "type of parameters and gradients")
        ->check(CLI::IsMember({"float32", "bfloat16", "float16"}))
        ->capture_default_str();
    app.add_option("--partitioner", settings.partitioner, "how shards are cut")
        ->check(CLI::IsMember({"contiguous", "round-robin"}))
        ->capture_default_str();
    app.add_option("--bucket-bytes", settings.bucket_bytes, "cap of a bucket")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    auto* const accumulate =
        app.add_option("--accumulate", settings.accumulate, "micro-steps per step")
            ->check(CLI::PositiveNumber)
            ->capture_default_str();
    auto* const micro_batches =
        app.add_option("--micro-batches", settings.micro_batches,
                       "batches of all ranks per step, added in a tree, so that each number of "
                       "ranks has the same bits; instead of --accumulate")
            ->excludes(accumulate);
    app.add_flag("--in-rank-order", settings.in_rank_order,
                 "adds the same batches in rank order: other bits for each number of ranks")
        ->needs(micro_batches);
    app.add_option("--inner-ranks", settings.inner_ranks,
                   "consecutive ranks that add among themselves first, so that one sum of them "
                   "travels to the other groups; a divisor of the number of ranks")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--shard", settings.shard,
                   "ranks over which states are sharded, such as those of a host; other groups of "
                   "as many hold replicas (stages 1 to 3, with --dtype bfloat16)")
        ->check(CLI::PositiveNumber);
    app.add_option("--secondary", settings.secondary,
                   "ranks, such as those of a host, that share a copy of what stage 3 gathers, so "
                   "that the backward pass reads from them only (with --dtype bfloat16)")
        ->check(CLI::PositiveNumber);
    app.add_option("--wire", settings.wire,
                   "how weights travel between ranks: as they are, or in blocks of codes of 8 or 4 "
                   "bits (stages 1 to 3, with --dtype bfloat16)")
        ->check(CLI::IsMember({"plain", "int8", "int4"}))
        ->capture_default_str();
    app.add_option("--wire-gradients", settings.wire_gradients,
                   "how gradients travel: as they are, or in codes of 4 bits (with --wire int8)")
        ->check(CLI::IsMember({"plain", "int4"}))
        ->capture_default_str();
    app.add_option("--feedback", settings.feedback,
                   "how what their encoding loses is kept (with --wire-gradients int4)")
        ->check(CLI::IsMember({"none", "float"}))
        ->capture_default_str();
    app.add_option("--schedule", settings.schedule,
                   "when gradients are reduced (default: that of the stage)")
        ->check(CLI::IsMember({"boundary", "every-micro-step"}));
    app.add_option("--steps", settings.steps, "optimizer steps")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--layers", settings.layers, "transformer blocks")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--width", settings.width, "channels, a multiple of 16")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--context", settings.context, "bytes of a sample")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--batch", settings.batch, "samples per rank and micro-step")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--skip-above-norm", settings.skip_above_norm,
                   "skip steps with a larger gradient norm");
    app.add_option("--learning-rate", settings.learning_rate, "peak learning rate")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    app.add_option("--save", settings.save, "directory in which checkpoints are saved");
    app.add_option("--save-every", settings.save_every,
                   "steps between checkpoints (default: one at the end)");
    app.add_option("--resume", settings.resume,
                   "directory of checkpoints; goes on from the latest, under any --stage, --world "
                   "and --partitioner");
    app.add_option("--stop-after", settings.stop_after,
                   "end after this step; --steps stays the length of the schedule");
    add_gather_options(app, settings);
    add_memory_options(app, settings);
    app.add_option("--communicator", settings.communicator,
                   "whether ranks are threads, or processes over MPI (then their number is that of "
                   "the launcher)")
        ->check(CLI::IsMember({"loopback", "mpi"}))
        ->capture_default_str();
    app.add_option("--order", settings.order, "the order of sums over MPI")
        ->check(CLI::IsMember({"rank", "library"}))
        ->capture_default_str();
    app.add_option("--time-out", settings.time_out, "seconds to wait for a rank over MPI")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--text", settings.text,
                   "a file to train on (default: the headers of the library)")
        ->check(CLI::ExistingFile);
    app.add_option("--timeline", settings.timeline,
                   "file for a trace of the last 3 steps, which ui.perfetto.dev shows");
    app.add_option("--seed", settings.seed, "of initial values and batches")->capture_default_str();
    app.add_option(
        "--verify", settings.verify,
        "repeat this many steps under all stages and partitioners and compare the parameters");
    CLI11_PARSE(app, argc, argv);
    try {
        if (settings.verify != 0
            && !(settings.save + settings.resume + settings.timeline).empty()) {
            std::fprintf(stderr, "%s: --verify neither saves nor resumes nor records\n", name);
            return 1;
        }
        if (!prepare(settings)) {
            return 0;
        }
        Text const text(read_text(settings), settings.context);
        return settings.verify != 0 ? verify(settings, text, train)
                                    : train_once(settings, text, train);
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s: %s\n", name, error.what());
        return 1;
    }
}

} // namespace gpt
