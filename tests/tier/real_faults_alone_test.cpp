// Faults of real file systems. Each test prepares them in a child process, so this executable has
// no other tests.

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/tier/file_tier.hpp>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#if defined(__linux__)

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace zero::test::real_faults_alone_test {

namespace {

struct alignas(4096) Chunk {
    std::byte bytes[std::size_t{64} << 10U]{};
};

/// Calls `body()` in a child process and returns the text that it returns.
template <class Body>
std::string in_child(Body const& body) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid_t const child = ::fork();
    if (child == 0) {
        std::string const text = body();
        ::_exit(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size())
                    ? 0
                    : 1);
    }
    ::close(ends[1]);
    REQUIRE(child > 0);
    std::string result;
    char part[512];
    for (ssize_t count = 0; (count = ::read(ends[0], part, sizeof(part))) > 0;) {
        result.append(part, static_cast<std::size_t>(count));
    }
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return result;
}

/// Makes a tier of four chunks, calls `change()`, writes and reads them.
/// @return the message of the failure, after its type
template <class Change>
std::string use(std::filesystem::path const& folder, Change const& change) {
    try {
        HostMemoryResource memory;
        std::vector<Chunk> chunks(4);
        std::vector<std::uint64_t> const sizes(4, sizeof(Chunk));
        FileTier tier({.path = folder, .allow_page_cache = true}, sizes, "rank 0", memory);
        change();
        for (std::size_t chunk = 0; chunk < 4; ++chunk) {
            tier.reading_queue(chunk)->wait(tier.write(chunk, &chunks[chunk]));
            tier.read(chunk, &chunks[chunk]).synchronise();
        }
        tier.rethrow_failure();
    } catch (TierError const& error) {
        return std::string("TierError ") + error.what();
    } catch (InvalidArgument const& error) {
        return std::string("InvalidArgument ") + error.what();
    } catch (...) {
        return "another error";
    }
    return "done";
}

std::string use(std::filesystem::path const& folder) {
    return use(folder, [] {});
}

/// Mounts a tmpfs where only this process sees it.
/// @return the reason why it cannot; empty: it has
std::string mount_alone(std::filesystem::path const& folder, unsigned long flags,
                        char const* options) {
    if (::unshare(CLONE_NEWNS) != 0 // only root may
        || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0
        || ::mount("zero", folder.c_str(), "tmpfs", flags, options) != 0) {
        return std::string("skipped: mount: ") + std::strerror(errno);
    }
    return "";
}

bool is_skipped(std::string const& result) {
    bool const skips = result.starts_with("skipped");
    if (skips) {
        WARN(result);
    }
    return skips;
}

} // namespace

TEST_CASE("A file system without room for the states is refused when the tier is made") {
    TemporaryFolder const folder;
    std::string const result = in_child([&] {
        std::string const reason = mount_alone(folder.path(), 0, "size=128k");
        return reason.empty() ? use(folder.path()) : reason;
    });
    if (!is_skipped(result)) {
        CHECK(result.starts_with("TierError zero: rank 0: offload.path "));
        CHECK(result.find("has no room for a file of 262144 bytes: No space left on device")
              != std::string::npos);
    }
}

TEST_CASE("A file system that was filled by others still has the room of a tier") {
    TemporaryFolder const folder;
    std::string const result = in_child([&] {
        std::string const reason = mount_alone(folder.path(), 0, "size=512k");
        return reason.empty() ? use(folder.path(),
                                    [&] { // what is left, and more
                                        set_content(folder / "other", std::string(1U << 20U, 'x'));
                                    })
                              : reason;
    });
    if (!is_skipped(result)) {
        CHECK(result == "done");
    }
}

TEST_CASE("A file system that is mounted for reading is refused") {
    TemporaryFolder const folder;
    std::string const result = in_child([&] {
        std::string const reason = mount_alone(folder.path(), MS_RDONLY, "");
        return reason.empty() ? use(folder.path()) : reason;
    });
    if (!is_skipped(result)) {
        CHECK(result.starts_with("InvalidArgument zero: rank 0: no file can be made in "));
        CHECK(result.find("Read-only file system") != std::string::npos);
    }
}

TEST_CASE("A folder in which the user may not write is refused") {
    TemporaryFolder const folder;
    REQUIRE(::chmod(folder.path().c_str(), 0555) == 0);
    std::string const result = in_child([&]() -> std::string {
        if (::geteuid() == 0 && ::setuid(65534) != 0) {
            return "skipped: root may write everywhere";
        }
        return use(folder.path());
    });
    if (!is_skipped(result)) {
        CHECK(result.starts_with("InvalidArgument zero: rank 0: no file can be made in "));
        CHECK(result.find("Permission denied") != std::string::npos);
    }
}

TEST_CASE("A limit of the size of files is an error of the construction, or of the write that it "
          "stops") {
    TemporaryFolder const folder;
    auto const limit = [](std::size_t bytes) {
        std::signal(SIGXFSZ, SIG_IGN);
        ::rlimit const value{bytes, bytes};
        ::setrlimit(RLIMIT_FSIZE, &value);
    };
    std::size_t const two_chunks = 2 * sizeof(Chunk);
    std::string const whole = in_child([&] {
        limit(two_chunks);
        return use(folder.path());
    });
    CHECK(whole.starts_with("TierError "));
    CHECK(whole.find("has no room for a file of 262144 bytes: File too large")
          != std::string::npos);
    std::string const later = // of the last chunk only: others fail on other queues
        in_child([&] { return use(folder.path(), [&] { limit(3 * sizeof(Chunk)); }); });
    CHECK(later.starts_with("TierError zero: rank 0: chunk 3, at byte 196608 of its file"));
    CHECK(later.find("writing failed: File too large") != std::string::npos);
}

} // namespace zero::test::real_faults_alone_test

#endif
