#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/type_name.hpp"
#include "../stage/detail/add_held_states.hpp"
#include "../stage/detail/state_access.hpp"
#include "../stage/detail/state_table.hpp"
#include "checkpoint_directory.hpp"
#include "checkpoint_error.hpp"
#include "checkpoint_reader.hpp"
#include "detail/broadcast_text.hpp"
#include "detail/load_plan.hpp"
#include "detail/loaded_scalars.hpp"
#include "detail/on_every_rank.hpp"
#include "load_options.hpp"
#include "load_report.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Loads a checkpoint into an engine of any stage, world size, partitioner and storage.
/// Collective, between two steps, with no handle held; waits.
///
/// Every rank reads the intervals that it holds, and no more. First it checks the manifest against
/// the engine and verifies the checksums of what it needs; only when all ranks have succeeded, it
/// reads again and writes the engine's memory. Training then goes on with the bits with which it
/// would have gone on without stopping, if world size, types and reduction schedule are the same.
/// Master weights of another form are loaded by their value.
/// @param directory as given to `save_checkpoint`
/// @throws CheckpointError if there is no checkpoint, a file is damaged, or it does not fit; the
/// engine is unchanged. An error while it is read for the second time breaks the engine.
template <class Stage>
LoadReport load_checkpoint(Stage& stage, std::filesystem::path const& directory,
                           LoadOptions const& options = {}) {
    using Config = typename Stage::Composition::EngineConfig;
    detail::StateAccess<Config> const access(static_cast<typename Stage::EngineType&>(stage));
    access.wait_to_write("load_checkpoint()");
    CheckpointDirectory const checkpoints(directory);
    std::string found = options.name;
    detail::on_every_rank(access, "find a checkpoint", [&] {
        if (access.rank() == 0 && found.empty()) {
            found = checkpoints.latest().value_or("");
        }
        return std::uint64_t{0};
    });
    LoadReport report;
    report.name = detail::broadcast_text(access, found, "name of a checkpoint");
    if (report.name.empty()) {
        detail::throw_error<CheckpointError>({"zero: '", directory.string(),
                                              "' contains no complete checkpoint (rank ",
                                              access.rank(), ")."});
    }
    detail::StateTable const table(access.layout(), access.arrays());
    std::vector<std::string> names;
    for (detail::HeldArray const& array : table.arrays()) {
        names.push_back(detail::array_name<typename Config::Optimizer>(array.form));
    }
    std::optional<CheckpointReader> checkpoint;
    std::optional<detail::LoadPlan> plan;
    std::optional<detail::LoadedScalars<Config>> scalars;
    detail::on_every_rank(access, "load the checkpoint", [&] {
        auto const path = checkpoints.path(report.name);
        checkpoint.emplace(path);
        plan.emplace(access.layout(), table, names, *checkpoint, options);
        if (options.scope == LoadScope::everything) {
            if (auto const optimizer = type_name<typename Config::Optimizer>();
                optimizer != checkpoint->manifest().optimizer) {
                plan->differ(
                    detail::text({"the checkpoint was made with the optimizer ",
                                  checkpoint->manifest().optimizer, " and not with ", optimizer}));
            }
            scalars.emplace(access, checkpoint->manifest(), path.string(), options.settings);
        }
        report.bytes_needed = plan->verify();
        return std::uint64_t{0};
    });
    access.guard([&] {
        plan->load(
            [&](void* to, void const* from, std::size_t bytes) { access.copy(to, from, bytes); },
            !requires { requires detail::StateAccess<Config>::Backend::is_device; });
        if (scalars) {
            scalars->set(access);
        }
        detail::wait_for_collectives(access.communicator(), access.queue());
    });
    access.publish_written();
    report.extras = checkpoint->manifest().extras;
    report.differences = plan->differences();
    report.bytes_read = checkpoint->bytes_read();
    return report;
}

} // namespace ZERO_NAMESPACE
