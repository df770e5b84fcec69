#include "publish.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/safetensors.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/checkpoint_directory.hpp>
#include <zero/checkpoint/checkpoint_error.hpp>
#include <zero/checkpoint/detail/file.hpp>
#include <zero/checkpoint/manifest.hpp>
#include <zero/checkpoint/save_parameters.hpp>
#include <zero/comm/sum_over_ranks.hpp>
#include <zero/stage/zero_stage.hpp>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace zero::test::checkpoint_directory_test {

namespace {

/// Limits the size of files, as a full disk would; a write beyond it fails with EFBIG.
class SizeLimit {
public:
    explicit SizeLimit(rlim_t bytes) : _handler(std::signal(SIGXFSZ, SIG_IGN)) {
        ::getrlimit(RLIMIT_FSIZE, &_before);
        rlimit limit = _before;
        limit.rlim_cur = bytes;
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    SizeLimit(SizeLimit const&) = delete;
    SizeLimit& operator=(SizeLimit const&) = delete;
    ~SizeLimit() {
        ::setrlimit(RLIMIT_FSIZE, &_before);
        (void)std::signal(SIGXFSZ, _handler);
    }

private:
    void (*_handler)(int);
    rlimit _before{};
};

} // namespace

TEST_CASE("A checkpoint appears when it is published, and not before") {
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder / "a/b");
    CHECK_FALSE(directory.latest());
    CHECK(directory.complete().empty());
    directory.begin("one");
    set_content(directory.incomplete("one") / "manifest.json", "1");
    CHECK_FALSE(directory.latest());
    CHECK(directory.complete().empty());
    directory.publish("one");
    CHECK(directory.latest() == "one");
    CHECK(directory.complete() == Names{"one"});
    CHECK(content_of(directory.path("one") / "manifest.json") == "1");
    CHECK(entries(folder / "a/b") == Names{"latest", "one"});
    CHECK(content_of(folder / "a/b/latest") == "one\n");
}

TEST_CASE("A checkpoint of the same name is replaced") {
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder.path());
    publish(directory, "one", 1);
    publish(directory, "two", 2);
    set_content(folder / "one/old", "x");
    publish(directory, "one", 3);
    CHECK(content_of(folder / "one/manifest.json") == "one3");
    CHECK(entries(folder / "one") == Names{"manifest.json"});
    CHECK(entries(folder.path()) == Names{"latest", "one", "two"});
    CHECK(directory.latest() == "one");
    CHECK(directory.complete() == Names{"two", "one"});
}

/// Returns the message of `latest()`; empty if it throws none.
std::string refusal_of_latest(CheckpointDirectory const& directory) {
    try {
        (void)directory.latest();
    } catch (CheckpointError const& error) {
        return error.what();
    }
    return {};
}

TEST_CASE("A file 'latest' that names no checkpoint is an error, and lists those that are there") {
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder.path());
    publish(directory, "older", 1);
    publish(directory, "newer", 2);
    publish(directory, "oldest", 0);
    CHECK(directory.latest() == "oldest"); // named by the file
    for (std::string const& content :
         {std::string("missing\n"), std::string("../x"), std::string(""), std::string("/"),
          std::string("."), std::string("latest"), std::string("a/b"), std::string("latest\0", 7),
          std::string(4000, 'x'), std::string("\n\n"), std::string("newer\r\n")}) {
        set_content(folder / "latest", content);
        INFO(content);
        CHECK_THAT(refusal_of_latest(directory),
                   contains_text("does not exist")
                       && contains_text("Complete checkpoints there: 'oldest', 'older', 'newer'. ")
                       && contains_text("remove the file"));
    }
    CHECK_THAT(refusal_of_latest(directory), contains_text("names the checkpoint 'newer\\x0d', "));
    publish(directory, "step-1", 3);
    publish(directory, "step-2", 4);
    set_content(folder / "latest", "step-02");
    CHECK_THROWS_AS(directory.keep_last(1), CheckpointError); // which one must stay?
    CHECK(directory.complete().size() == 5);
    directory.keep_last(2);
    std::filesystem::remove_all(folder / "step-1");
    std::filesystem::remove_all(folder / "step-2");
    std::filesystem::remove(folder / "latest");
    CHECK(directory.latest() == "newer");

    // A checkpoint outside the directory is not found.
    std::filesystem::copy(folder / "newer", folder / "newer/inner");
    CheckpointDirectory const inner(folder / "newer/inner");
    set_content(folder / "newer/inner/latest", "../../older");
    CHECK_FALSE(inner.latest());
}

TEST_CASE("A latest checkpoint without its manifest is an error and not another checkpoint") {
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder.path());
    publish(directory, "older", 1);
    publish(directory, "only", 2);
    std::filesystem::remove(folder / "only/manifest.json");
    for (std::string const& others : {std::string("'older'"), std::string("none")}) {
        CHECK_THAT(refusal_of_latest(directory),
                   contains_text("names the checkpoint 'only', which has no manifest.json")
                       && contains_text("remove it and name another")
                       && contains_text("Complete checkpoints there: " + others + "."));
        std::filesystem::remove_all(folder / "older");
    }
    std::filesystem::remove_all(folder / "only");
    CHECK_FALSE(directory.latest());
}

TEST_CASE("What a save left behind is removed by the next one") {
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder.path());
    publish(directory, "one", 1);
    directory.begin("two");
    set_content(directory.incomplete("two") / "data", "x");
    std::filesystem::create_directories(folder / ".replaced-zero/inner");
    set_content(folder / ".incomplete-latest", "thr");
    set_content(folder / "other", "of the user");
    CHECK(directory.latest() == "one");
    directory.begin("three");
    CHECK(entries(folder.path()) == Names{".incomplete-three", "latest", "one", "other"});
    CHECK(entries(directory.incomplete("three")).empty());
}

TEST_CASE("A checkpoint that was moved aside when a process died is put back, not removed") {
    // Where the file system cannot exchange names, publishing takes two renames.
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder.path());
    publish(directory, "best", 1);
    std::filesystem::rename(folder / "best", folder / ".replaced-best");
    CHECK_FALSE(directory.latest());
    directory.begin("another");
    CHECK(directory.latest() == "best");
    CHECK(content_of(folder / "best/manifest.json") == "best1");

    // A checkpoint that keep_last has begun to remove may lack files. It is not restored.
    std::filesystem::create_directory(folder / ".removed-old");
    set_content(folder / ".removed-old/manifest.json", "old");
    directory.begin("next");
    CHECK(entries(folder.path()) == Names{".incomplete-next", "best", "latest"});
}

TEST_CASE("A folder that this user may not enter is no checkpoint and no error") {
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder.path());
    publish(directory, "one", 1);
    std::filesystem::create_directory(folder / "lost+found"); // as at the root of a volume
    std::filesystem::permissions(folder / "lost+found", std::filesystem::perms::none);
    std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
    // The administrator may enter every folder, so a child process looks as another user.
    ::pid_t const child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) {
            ::_exit(2);
        }
        if (::access(folder.path().c_str(), R_OK | X_OK) != 0) {
            ::_exit(4);
        }
        try {
            directory.keep_last(1);
            ::_exit(directory.complete() == Names{"one"} ? 0 : 3);
        } catch (CheckpointError const&) {
            ::_exit(1);
        }
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    std::filesystem::permissions(folder / "lost+found", std::filesystem::perms::owner_all);
    if (WEXITSTATUS(status) == 4) { // for example, only root may enter the root folder
        WARN("not checked: no other user may enter " << folder.path().string());
        return;
    }
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("A save keeps its folder from other saves, until it ends") {
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder.path());
    directory.begin("one");
    set_content(directory.incomplete("one") / "data", "x");
    {
        detail::FolderLock const lock(directory.incomplete("one"));
        directory.begin("two");
        CHECK(content_of(directory.incomplete("one") / "data") == "x");
        CHECK_THROWS_WITH(directory.begin("one"), contains_text("'one' is being written"));
        CHECK_THROWS_AS(detail::FolderLock(directory.incomplete("one")), CheckpointError);
        CHECK(content_of(directory.incomplete("one") / "data") == "x");
    }
    directory.begin("three");
    CHECK(entries(folder.path()) == Names{".incomplete-three"});
}

TEST_CASE("What cannot be removed is told, and checkpoints are saved all the same") {
    TemporaryFolder const folder;
    std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
    CheckpointDirectory const directory(folder / "all");
    publish(directory, "step-1", 1);
    publish(directory, "best", 2);
    for (char const* const left : {".incomplete-old", ".incomplete-step-2", ".removed-step-1"}) {
        std::filesystem::create_directory(folder / "all" / left);
        set_content(folder / "all" / left / "data", "x");
    }
    // Nothing can be removed from these folders, unless by the administrator.
    for (auto const& entry : std::filesystem::directory_iterator(folder / "all")) {
        if (entry.is_directory()) {
            std::filesystem::permissions(entry.path(), std::filesystem::perms(0555));
        }
    }
    std::filesystem::permissions(folder / "all", std::filesystem::perms::all);
    ::pid_t const child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        if (std::freopen((folder / "errors").c_str(), "w", stderr) == nullptr
            || (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0))) {
            ::_exit(2);
        }
        if (::access((folder / "all").c_str(), R_OK | X_OK) != 0) {
            ::_exit(4);
        }
        try {
            publish(directory, "step-2", 3);
            directory.keep_last(1, "step-2");
            publish(directory, "best", 4);
            std::fflush(stderr);
            ::_exit(0);
        } catch (CheckpointError const& error) {
            std::fprintf(stderr, "%s\n", error.what());
            std::fflush(stderr);
            ::_exit(1);
        }
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    for (auto const& entry : std::filesystem::directory_iterator(folder / "all")) {
        if (entry.is_directory()) {
            std::filesystem::permissions(entry.path(), std::filesystem::perms::all);
        }
    }
    if (WEXITSTATUS(status) == 4) { // for example, only root may enter the root folder
        WARN("not checked: no other user may enter " << folder.path().string());
        return;
    }
    std::string const printed = content_of(folder / "errors");
    INFO(printed);
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(directory.complete() == Names{"best", "step-2"});
    CHECK(directory.latest() == "best");
    CHECK(content_of(folder / "all/best/manifest.json") == "best4");
    for (char const* const left :
         {".incomplete-old", ".removed-step-2", ".removed-step-1~1", ".incomplete-best"}) {
        CHECK_THAT(printed, contains_text("zero: warning: '" + (folder / "all" / left).string()
                                          + "' could not be removed (Permission denied)"));
    }
    publish(directory, "step-3", 5); // now they can be removed
    CHECK(entries(folder / "all") == Names{"best", "latest", "step-2", "step-3"});
}

TEST_CASE("Names that are not those of a folder inside are refused") {
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder / "inner");
    for (std::string const& name :
         {std::string(""), std::string("."), std::string(".."), std::string(".x"),
          std::string("../x"), std::string("a/b"), std::string("/x"), std::string("latest"),
          std::string("a\0b", 3), std::string("a\nb"), std::string("a\r"), std::string(201, 'x')}) {
        CHECK_THROWS_AS(directory.begin(name), CheckpointError);
        CHECK_THROWS_AS(directory.publish(name), CheckpointError);
        CHECK_THROWS_AS(directory.path(name), CheckpointError);
        CHECK_THROWS_AS(directory.incomplete(name), CheckpointError);
    }
    CHECK(entries(folder.path()).empty());
    publish(directory, std::string(200, 'x'), 1);
    CHECK(directory.latest() == std::string(200, 'x'));
}

TEST_CASE("Neither a folder of the user is replaced nor an incomplete checkpoint published") {
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder.path());
    std::filesystem::create_directory(folder / "mine");
    set_content(folder / "mine/file", "precious");
    CHECK_THROWS_WITH(directory.begin("mine"), contains_text((folder / "mine").string())
                                                   && contains_text("is not a checkpoint"));
    CHECK(content_of(folder / "mine/file") == "precious");
    directory.begin("one");
    CHECK_THROWS_WITH(directory.publish("one"), contains_text("has no manifest"));
    CHECK_THROWS_WITH(directory.publish("never-begun"), contains_text("never-begun"));
    CHECK_FALSE(directory.latest());
    CHECK_THROWS_WITH(CheckpointDirectory(folder / "mine/file").begin("x"),
                      contains_text((folder / "mine/file").string()));
}

TEST_CASE("A folder that cannot be made durable is named, with the operation that failed") {
    TemporaryFolder const folder;
    CHECK_NOTHROW(detail::sync_folder(folder.path()));
    CHECK_THROWS_WITH(detail::sync_folder(folder / "missing"),
                      contains_text((folder / "missing").string())
                          && contains_text("opening the folder") && contains_text("No such file"));
}

TEST_CASE("A disk that is full while a file is written publishes nothing") {
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder.path());
    publish(directory, "one", 1);
    directory.begin("two");
    auto const file = directory.incomplete("two") / "data";
    for (std::uint64_t const bytes : {70'000U, 65'000U, 5'000'000U}) { // 65000: the checksums
        std::string what;
        auto const data = numbered_bytes(bytes);
        {
            SizeLimit const limit(65'200);
            try {
                write_tensors(file, {{"x", "U8", {bytes}}}, data);
            } catch (CheckpointError const& error) {
                what = error.what();
            }
        }
        CHECK_THAT(what,
                   contains_text("'" + file.string() + "'") && contains_text("File too large"));
        std::filesystem::remove(file);
    }
    CHECK(directory.latest() == "one");
    CHECK(directory.complete() == Names{"one"});
    directory.begin("two");
    CHECK(entries(directory.incomplete("two")).empty());
}

TEST_CASE("A checkpoint that is published leaves no file open") {
    std::filesystem::path const open_files("/proc/self/fd");
    if (!std::filesystem::exists(open_files)) {
        SUCCEED("skipped: the system does not list open files");
        return;
    }
    TemporaryFolder const folder;
    CheckpointDirectory const directory(folder / "all");
    auto const before = entries(open_files).size();
    publish(directory, "one", 1);
    CHECK(entries(open_files).size() == before);
}

TEST_CASE("An export that finds the disk full fails on every rank, and leaves nothing behind") {
    TemporaryFolder const folder;
    auto const file = folder / "model.safetensors";
    auto const all = on_ranks<Outcome>(2, [&](LoopbackCommunicator& communicator) {
        std::vector<Parameter<float>> parameters; // many between two comparisons of outcomes
        for (std::size_t number = 0; number < 20; ++number) {
            parameters.push_back(
                {.name = std::to_string(number), .elements = 60'000, .units = {0}});
        }
        ZeroStage<2> engine(communicator, parameters);
        std::optional<SizeLimit> limit;
        if (communicator.rank() == 0) {
            limit.emplace(2'000'000);
        }
        (void)sum_over_ranks(communicator, 0.0F);
        Outcome const own = outcome_of([&] { save_parameters(engine, file); });
        (void)sum_over_ranks(communicator, 0.0F);
        limit.reset();
        engine.begin_step();
        engine.cancel_step();
        return own;
    });
    for (Outcome const& outcome : all) {
        CHECK_THAT(outcome.message, contains_text("model.safetensors"));
    }
    CHECK(entries(folder.path()).empty());
}

} // namespace zero::test::checkpoint_directory_test
