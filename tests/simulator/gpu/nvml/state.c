/* Copyright: Contributors to the trainyard.cluster collection
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 */
#include "state.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_SIZE 512
#define KEY_SIZE 128
#define DIRECTORY "/var/lib/simgpu"

struct entry {
    const char *key;
    const char *value;
};

struct table {
    const char *name;
    struct stat seen;
    char *text;
    struct entry *entries;
    size_t count;
};

static struct table state = {.name = "state"};
static struct table hardware = {.name = "hardware"};
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

const char *sim_root(void)
{
    const char *root = getenv("SIMGPU_ROOT");
    return root ? root : "";
}

static void path_of(const char *name, char *path)
{
    snprintf(path, PATH_SIZE, "%s" DIRECTORY "/%s", sim_root(), name);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->key, ((const struct entry *)b)->key);
}

static void forget(struct table *table)
{
    free(table->text);
    free(table->entries);
    table->text = NULL;
    table->entries = NULL;
    table->count = 0;
    memset(&table->seen, 0, sizeof table->seen);
}

static bool unchanged(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Splits text in place: "key=value" a line; empty lines and lines that begin with # are passed over. */
static void split(struct table *table)
{
    size_t lines = 1;
    for (const char *c = table->text; *c; c++)
        lines += *c == '\n';
    table->entries = calloc(lines, sizeof *table->entries);
    if (!table->entries)
        return;
    char *rest = table->text;
    for (char *line; (line = strtok_r(rest, "\n", &rest));) {
        char *equals = strchr(line, '=');
        if (*line == '#' || !equals)
            continue;
        *equals = '\0';
        table->entries[table->count++] = (struct entry){line, equals + 1};
    }
    qsort(table->entries, table->count, sizeof *table->entries, by_key);
}

static void refresh(struct table *table)
{
    char path[PATH_SIZE];
    struct stat now;
    path_of(table->name, path);
    if (stat(path, &now) != 0) {
        forget(table);
        return;
    }
    if (table->text && unchanged(&now, &table->seen))
        return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    /* The file is replaced, never written to: what is open now stays whole. */
    char *text = NULL;
    if (fstat(file, &now) == 0 && (text = malloc((size_t)now.st_size + 1))) {
        size_t got = 0;
        for (ssize_t n; got < (size_t)now.st_size && (n = read(file, text + got, (size_t)now.st_size - got)) > 0;)
            got += (size_t)n;
        text[got] = '\0';
        forget(table);
        table->text = text;
        table->seen = now;
        split(table);
    }
    close(file);
}

static const char *find(const struct table *table, const char *key)
{
    const struct entry wanted = {key, NULL};
    const struct entry *found =
        table->count ? bsearch(&wanted, table->entries, table->count, sizeof wanted, by_key) : NULL;
    return found ? found->value : NULL;
}

static void full_key(int slot, const char *key, char *full)
{
    if (slot == SIM_MACHINE)
        snprintf(full, KEY_SIZE, "%s", key);
    else
        snprintf(full, KEY_SIZE, "gpu.%d.%s", slot, key);
}

bool sim_text(int slot, const char *key, char *value, size_t size)
{
    char full[KEY_SIZE], shared[KEY_SIZE];
    full_key(slot, key, full);
    snprintf(shared, sizeof shared, "gpu.%s", key);
    pthread_mutex_lock(&guard);
    refresh(&state);
    refresh(&hardware);
    const char *found = find(&state, full);
    if (!found)
        found = find(&hardware, full);
    if (!found && slot != SIM_MACHINE)
        found = find(&hardware, shared);
    if (found)
        snprintf(value, size, "%s", found);
    pthread_mutex_unlock(&guard);
    return found != NULL;
}

bool sim_number(int slot, const char *key, double *value)
{
    char text[SIM_VALUE_SIZE], *end;
    if (!sim_text(slot, key, text, sizeof text))
        return false;
    double number = strtod(text, &end);
    if (end == text || *end)
        return false;
    *value = number;
    return true;
}

static bool replaced(const char *key, int slot, const struct sim_change *changes, size_t count)
{
    char full[KEY_SIZE];
    for (size_t i = 0; i < count; i++) {
        full_key(slot, changes[i].key, full);
        if (strcmp(key, full) == 0)
            return true;
    }
    return false;
}

static bool write_state(int slot, const struct sim_change *changes, size_t count)
{
    char path[PATH_SIZE], fresh[PATH_SIZE + 16], full[KEY_SIZE];
    path_of("state", path);
    snprintf(fresh, sizeof fresh, "%s.%ld", path, (long)getpid());
    FILE *file = fopen(fresh, "we");
    if (!file)
        return false;
    for (size_t i = 0; i < state.count; i++)
        if (!replaced(state.entries[i].key, slot, changes, count))
            fprintf(file, "%s=%s\n", state.entries[i].key, state.entries[i].value);
    for (size_t i = 0; i < count; i++) {
        full_key(slot, changes[i].key, full);
        if (*changes[i].value)
            fprintf(file, "%s=%s\n", full, changes[i].value);
    }
    /* nvidia-persistenced writes as its own user. */
    bool written = fchmod(fileno(file), 0666) == 0;
    written = fclose(file) == 0 && written;
    if (!written || rename(fresh, path) != 0) {
        unlink(fresh);
        return false;
    }
    return true;
}

bool sim_change(int slot, const struct sim_change *changes, size_t count)
{
    char path[PATH_SIZE];
    path_of("lock", path);
    int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0)
        return false;
    bool done = false;
    if (flock(lock, LOCK_EX) == 0) {
        pthread_mutex_lock(&guard);
        refresh(&state);
        done = write_state(slot, changes, count);
        pthread_mutex_unlock(&guard);
    }
    close(lock);
    return done;
}
