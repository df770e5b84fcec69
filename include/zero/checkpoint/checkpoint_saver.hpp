#pragma once

#include "../core/buffer.hpp"
#include "../core/detail/namespace.hpp"
#include "../host/host_backend.hpp"
#include "../stage/describe.hpp"
#include "../stage/detail/state/state_access.hpp"
#include "checkpoint_directory.hpp"
#include "detail/file.hpp"
#include "detail/file_job.hpp"
#include "detail/on_every_rank.hpp"
#include "detail/publish_checkpoint.hpp"
#include "detail/save_plan.hpp"
#include "load_options.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Saves checkpoints in the background: `start` copies the slices that this rank owns, and a
/// thread writes the copy while training continues. On Linux the thread uses only idle processor
/// time; a call that waits writes the rest itself.
///
/// The checkpoint exists when `poll` or `wait` has returned its name; both are collective, because
/// ranks agree that all have written. Until then earlier checkpoints are the latest. The next
/// `start` waits for it.
///
/// Memory: `snapshot_bytes` of host memory from the first `start` on, in addition to that of
/// `save_checkpoint`. With `Offload` it takes no copy: `start` writes, and only the wait until the
/// file is durable is left to the thread. Construct it after the engine, so that it is destroyed
/// first.
template <class Stage>
class CheckpointSaver {
public:
    /// @param stage the engine; it must outlive this object
    /// @param directory as for `save_checkpoint`
    CheckpointSaver(Stage& stage, std::filesystem::path directory)
        : _stage(&stage), _access(stage), _directory(std::move(directory)) {}
    CheckpointSaver(CheckpointSaver const&) = delete;
    CheckpointSaver& operator=(CheckpointSaver const&) = delete;

    /// @brief Publishes a checkpoint that was not published yet, as `wait` does; it is then
    /// collective. If that fails, or an exception destroys this object, the checkpoint is given up;
    /// the standard error says so, and the next save removes its files.
    ~CheckpointSaver() {
        std::string name; // without memory: a destructor may not throw
        try {
            if (!_plan) {
                return;
            }
            name = _plan->name;
            if (std::uncaught_exceptions() == _exceptions && !_access.protocol().is_broken()) {
                complete();
            } else if (_access.rank() == 0) { // other ranks may not get here
                report(name, "an exception ended the training before wait()");
            }
        } catch (std::exception const& error) {
            report(name, error.what());
        } catch (...) {
            report(name, "an exception that is not a std::exception");
        }
    }

    /// @brief Completes the previous checkpoint, copies the training state and starts to write it.
    /// Collective, between two steps; waits for the copy.
    /// @throws CheckpointError as `save_checkpoint`, and for the previous checkpoint
    void start(SaveOptions const& options = {}) {
        _access.require_idle("CheckpointSaver::start()");
        wait();
        _access.guard([&] { _access.wait_to_read(); });
        detail::SavePlan plan(_access, describe(*_stage), options);
        _options = options;
        _lock = detail::begin_checkpoint(_access, _directory, plan, options);
        try {
            plan.complete(_access, options.file_time_out);
            start(plan);
        } catch (...) { // another rank failed, and this one has started
            _write.give_up();
            _lock = {};
            throw;
        }
        _plan.emplace(std::move(plan));
    }

    /// @brief Publishes the checkpoint if all ranks have written. Collective; call it between two
    /// steps, or at any other point that is the same on all ranks. Exchanges one number and does
    /// not wait for the disk.
    /// @return its name; empty if there is none or it is still being written
    /// @throws CheckpointError on every rank if one could not write; the checkpoint is then given
    /// up
    std::optional<std::string> poll() {
        if (!_plan) {
            return std::nullopt;
        }
        std::vector<std::uint64_t> const is_done = detail::on_every_rank(
            _access, "say whether it has written", [&] { return std::uint64_t{_write.is_done()}; });
        for (std::uint64_t const done : is_done) {
            if (done == 0) {
                return std::nullopt;
            }
        }
        return complete();
    }

    /// @brief Waits until all ranks have written, and publishes the checkpoint. Collective.
    /// @return its name; empty if none was started
    std::optional<std::string> wait() { return _plan ? complete() : std::nullopt; }

    /// @brief Returns the host memory that this object holds for copies.
    [[nodiscard]] std::size_t snapshot_bytes() const noexcept { return _snapshot.size(); }

private:
    using Config = detail::config_of_t<Stage>;
    using Access = detail::StateAccess<Config>;

    /// Starts to write a copy of the state. A copy of offloaded states would need the memory that
    /// is saved, so they are written here.
    void start(detail::SavePlan<Config> const& plan) {
        auto const job = [&] { return plan.job(_directory.incomplete(plan.name), _options); };
        if constexpr (Config::Offload::is_any) {
            auto const write = [&](detail::OnCaller) {
                auto const copy = [&](void* to, void const* from, std::size_t bytes) {
                    _access.copy(to, from, bytes);
                };
                if (plan.writes()) {
                    auto const staging = detail::staging_buffer<Access>();
                    _write.start(job(), {staging.data(), copy});
                }
                return std::uint64_t{0};
            };
            detail::on_files(_access, "write its state to the checkpoint", write,
                             _options.file_time_out);
        } else {
            detail::on_every_rank(_access, "copy its state for the checkpoint", [&] {
                if (plan.writes()) {
                    _write.start(snapshot(job()), {});
                }
                return std::uint64_t{0};
            });
        }
    }

    /// Copies the memory of a job, and lets it read the copy.
    [[nodiscard]] detail::FileJob snapshot(detail::FileJob job) {
        std::size_t bytes = 0;
        for (detail::TensorSource const& source : job.sources) {
            bytes += source.bytes;
        }
        if (bytes > _snapshot.size()) {
            _snapshot = {};
            _snapshot =
                Buffer<std::byte>(HostBackend::default_memory(), bytes, BufferKind::scratch);
        }
        std::byte* to = _snapshot.data();
        for (detail::TensorSource& source : job.sources) {
            if (!source.is_on_host) {
                _access.copy(to, source.data, source.bytes);
            } else if (source.bytes != 0) {
                std::memcpy(to, source.data, source.bytes);
            }
            source.data = to;
            to += source.bytes;
        }
        return job;
    }

    std::optional<std::string> complete() {
        auto plan = *std::exchange(_plan, std::nullopt);
        auto const lock = std::move(_lock);
        std::vector<std::uint64_t> const checksums = detail::on_files(
            _access, "write its file of the checkpoint",
            [&](detail::OnCaller) { return _write.wait(); }, _options.file_time_out);
        detail::publish_checkpoint(_access, _directory, plan, checksums, _options);
        return plan.name;
    }

    static void report(std::string const& name, char const* cause) noexcept {
        std::fprintf(stderr, "zero: the checkpoint '%s' was given up: %s\n", name.c_str(), cause);
    }

    Stage* _stage;
    Access _access;
    CheckpointDirectory _directory;
    std::optional<detail::SavePlan<Config>> _plan; ///< plan of the checkpoint in progress
    detail::FolderLock _lock;                      ///< keeps its folder from other saves
    SaveOptions _options;                          ///< of the checkpoint in progress
    int _exceptions = std::uncaught_exceptions();
    Buffer<std::byte> _snapshot;
    detail::BackgroundWrite _write; ///< destroyed first: its thread reads the copy
};

} // namespace ZERO_NAMESPACE
